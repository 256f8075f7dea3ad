#include "net/shm_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

namespace tarn::net {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kSegmentMagic = 0x4d485354;  // "TSHM"
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The first page. It is followed by the ring that the server writes, then the ring that the client writes.
struct FirstPage {
  std::uint32_t magic = kSegmentMagic;
  std::uint32_t reserved = 0;
  std::uint64_t ring_bytes = 0;
  RingWords server, client;
};
static_assert(sizeof(FirstPage) <= kPage);

auto IoError(const char* what) {
  return Fail(ErrorCode::kIo, fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

bool IsRingSize(std::uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= ShmSegment::kRingBytesMin && bytes <= ShmSegment::kRingBytesMax;
}

}  // namespace

Expected<ShmSegment> ShmSegment::Create(std::size_t ring_bytes) {
  TARN_CHECK(IsRingSize(ring_bytes), "ring_bytes must be a power of two from kRingBytesMin to kRingBytesMax");
  Descriptor file(memfd_create("tarn-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return IoError("cannot make a segment");
  if (ftruncate(file.get(), static_cast<off_t>(kPage + 2 * ring_bytes)) != 0) return IoError("cannot size a segment");
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return IoError("cannot seal a segment");
  auto segment = MapRings(std::move(file), ring_bytes);
  if (segment) new (segment->base_) FirstPage{.ring_bytes = ring_bytes, .server = {}, .client = {}};
  return segment;
}

Expected<ShmSegment> ShmSegment::Map(Descriptor file) {
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return Fail(ErrorCode::kMalformed, "shared memory: expected a sealed segment");
  FirstPage first;
  struct stat status{};
  constexpr std::size_t kFixed = offsetof(FirstPage, server);
  if (fstat(file.get(), &status) != 0 || pread(file.get(), &first, kFixed, 0) != static_cast<ssize_t>(kFixed) ||
      first.magic != kSegmentMagic || !IsRingSize(first.ring_bytes) ||
      status.st_size != static_cast<off_t>(kPage + 2 * first.ring_bytes))
    return Fail(ErrorCode::kMalformed, "shared memory: expected a segment of tarn, with two rings");
  return MapRings(std::move(file), first.ring_bytes);
}

// Reserves one address range: the first page, then each ring mapped twice in a row.
Expected<ShmSegment> ShmSegment::MapRings(Descriptor file, std::size_t ring_bytes) {
  const std::size_t bytes = kPage + 4 * ring_bytes;
  void* reserved = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return IoError("no address space");
  ShmSegment segment(std::move(file), static_cast<std::byte*>(reserved), ring_bytes);
  const auto map = [&](std::size_t at, std::size_t size, std::size_t offset) {
    return mmap(segment.base_ + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment.file(),
                static_cast<off_t>(offset)) != MAP_FAILED;
  };
  if (!map(0, kPage, 0)) return IoError("cannot map a segment");
  for (std::size_t ring = 0; ring < 2; ++ring)
    for (std::size_t twice = 0; twice < 2; ++twice)
      if (!map(kPage + (2 * ring + twice) * ring_bytes, ring_bytes, kPage + ring * ring_bytes))
        return IoError("cannot map a segment");
  return segment;
}

ShmSegment::ShmSegment(Descriptor file, std::byte* base, std::size_t ring_bytes)
    : file_(std::move(file)), base_(base), mapped_bytes_(kPage + 4 * ring_bytes), ring_bytes_(ring_bytes) {}

ShmSegment::~ShmSegment() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

RingWords* ShmSegment::Words(ShmSide writer) {
  auto* first = reinterpret_cast<FirstPage*>(base_);
  return writer == ShmSide::kServer ? &first->server : &first->client;
}

std::byte* ShmSegment::Bytes(ShmSide writer) {
  return base_ + kPage + (writer == ShmSide::kServer ? 0 : 2 * ring_bytes_);
}

}  // namespace tarn::net
