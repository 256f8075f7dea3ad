#include "worker/models/workspace.h"

#include <algorithm>
#include <utility>

namespace tarn::worker {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kChunkBytesMin = std::size_t{1} << 20;
// A separate chunk of the exact size for each array, so that out-of-bounds accesses are detected.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kChunkPerArray = true;
#else
constexpr bool kChunkPerArray = false;
#endif

}  // namespace

void* Workspace::GetBytes(std::size_t bytes) {
  const std::size_t aligned = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  used_ += aligned;
  peak_ = std::max(peak_, used_);
  if (failed()) return nullptr;
  bytes = kChunkPerArray ? std::max<std::size_t>(bytes, 1) : aligned;
  if (kChunkPerArray) chunk_ = chunks_.size();
  if (kChunkPerArray) chunk_used_ = 0;
  while (chunk_ < chunks_.size() && chunks_[chunk_].bytes - chunk_used_ < bytes) {
    ++chunk_;
    chunk_used_ = 0;
  }
  if (chunk_ == chunks_.size() && !AddChunk(bytes)) return nullptr;
  return chunks_[chunk_].data + std::exchange(chunk_used_, chunk_used_ + bytes);
}

// Makes the chunk as large as all previous ones together, so that a step uses few chunks.
bool Workspace::AddChunk(std::size_t bytes) {
  Chunk chunk;
  chunk.bytes = kChunkPerArray ? bytes : std::max({bytes, held_bytes(), kChunkBytesMin});
  if (stream_ == nullptr) {
    chunk.host = Buffer::Allocate(chunk.bytes);
    chunk.data = chunk.host.data();
  } else {
    auto device = kernels::DeviceBuffer::Allocate(*stream_, chunk.bytes, "the activations of a step");
    if (!device) {  // the smaller size may still fit
      chunk.bytes = bytes;
      device = kernels::DeviceBuffer::Allocate(*stream_, bytes, "the activations of a step");
    }
    if (!device) {
      failure_ = device.error().message;
      return false;
    }
    chunk.device = std::move(*device);
    chunk.data = chunk.device.as<std::byte>();
  }
  chunks_.push_back(std::move(chunk));
  return true;
}

void Workspace::Release(const Mark& mark) {
  chunk_ = mark.chunk;
  chunk_used_ = mark.chunk_used;
  used_ = mark.used;
  if (kChunkPerArray) chunks_.resize(mark.used == 0 ? 0 : mark.chunk + 1);
}

void Workspace::Reset() {
  Release({});
  if (chunks_.size() > 1 && !failed()) {
    chunks_.clear();
    AddChunk(peak_);
  }
  peak_ = 0;
  failure_.clear();
}

std::size_t Workspace::held_bytes() const {
  std::size_t bytes = 0;
  for (const Chunk& chunk : chunks_) bytes += chunk.bytes;
  return bytes;
}

}  // namespace tarn::worker
