// Memory that is returned to the system when it is freed, unlike heap memory. Used for the chunks in which the tier
// stores rows, so that memory that one table frees is available to the others within the memory budget
// (storage.memory).
#pragma once

#include <cstddef>

namespace tarn::server {

// Allocates `bytes` zeroed bytes, aligned to pages. Chunks of 2 MiB and more are aligned to huge pages and request
// them. Throws OutOfMemory (server/exhaustion.h).
std::byte* MapChunk(std::size_t bytes);
void UnmapChunk(std::byte* chunk, std::size_t bytes);

}  // namespace tarn::server
