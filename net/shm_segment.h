// Memory shared by two processes of one host: a ring in each direction. It has no name (memfd), so it is freed when
// both processes have unmapped it or ended. It is sealed, so neither process can truncate it.
//
//   server: auto made = ShmSegment::Create(1 << 20);  // sends made->file() to the client
//   client: auto mapped = ShmSegment::Map(file);
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "core/descriptor.h"
#include "core/error.h"
#include "net/shm_ring.h"

namespace tarn::net {

enum class ShmSide { kServer, kClient };

// Movable; outlives its rings. One thread.
class ShmSegment {
 public:
  // `ring_bytes`: a power of two from kRingBytesMin to kRingBytesMax. kIo: out of memory or of files.
  static Expected<ShmSegment> Create(std::size_t ring_bytes);
  // Maps the segment that another process has created. kMalformed: not a segment, or not sealed. kIo: cannot be mapped.
  static Expected<ShmSegment> Map(Descriptor file);

  ShmSegment(ShmSegment&& other) noexcept
      : file_(std::move(other.file_)),
        base_(std::exchange(other.base_, nullptr)),
        mapped_bytes_(other.mapped_bytes_),
        ring_bytes_(other.ring_bytes_) {}
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  int file() const { return file_.get(); }
  // Closes the descriptor; the memory stays mapped. Call it when the other side has the descriptor.
  void CloseFile() { file_ = Descriptor(); }

  std::size_t ring_bytes() const { return ring_bytes_; }
  // The two ends that `side` uses: the writer of its own ring, and the reader of the ring that the other side writes.
  RingWriter Writer(ShmSide side) { return {Words(side), Bytes(side), ring_bytes_}; }
  RingReader Reader(ShmSide side) { return {Words(Other(side)), Bytes(Other(side)), ring_bytes_}; }

  static constexpr std::size_t kRingBytesMin = std::size_t{64} << 10;
  static constexpr std::size_t kRingBytesMax = std::size_t{1} << 30;

 private:
  ShmSegment(Descriptor file, std::byte* base, std::size_t ring_bytes);
  static Expected<ShmSegment> MapRings(Descriptor file, std::size_t ring_bytes);
  static ShmSide Other(ShmSide side) { return side == ShmSide::kServer ? ShmSide::kClient : ShmSide::kServer; }
  RingWords* Words(ShmSide writer);
  std::byte* Bytes(ShmSide writer);

  Descriptor file_;
  std::byte* base_;
  std::size_t mapped_bytes_;
  std::size_t ring_bytes_;
};

}  // namespace tarn::net
