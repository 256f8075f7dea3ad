// Memory that is given back to the system when it is freed, unlike the heap's: what a budget hands from table to table.
#pragma once

#include <cstddef>

namespace tarn::server {

// `bytes` zeroed bytes, aligned to pages; from 2 MiB on to huge pages, which are then asked for. Throws OutOfMemory
// (server/exhaustion.h).
std::byte* MapChunk(std::size_t bytes);
void UnmapChunk(std::byte* chunk, std::size_t bytes);

}  // namespace tarn::server
