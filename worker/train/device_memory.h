// Memory of a GPU, and pinned memory of the host, that grow with batches.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "kernels/stream.h"

namespace tarn::worker {

// Batches differ a little in size: room for a quarter more spares most of the allocations.
inline std::size_t WithRoom(std::size_t n) { return n + n / 4; }

// Makes *buffer, a DeviceBuffer or a PinnedBuffer that nobody uses, at least so large. What it held is lost if it
// grows. kIo: there is not so much memory; the message names `what` and the bytes.
template <typename BufferType>
Status Fit(kernels::Stream& stream, std::size_t bytes, std::string_view what, BufferType* buffer) {
  if (buffer->size() >= bytes) return {};
  *buffer = BufferType();
  auto larger = BufferType::Allocate(stream, WithRoom(bytes), what);
  if (!larger) larger = BufferType::Allocate(stream, bytes, what);
  if (!larger) return std::unexpected(std::move(larger).error());
  *buffer = std::move(*larger);
  return {};
}

}  // namespace tarn::worker
