#include "kernels/sparse_values.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

namespace tarn::kernels {
namespace {

constexpr std::uint32_t kSevenBits = 0x7f;
constexpr std::uint32_t kMore = 0x80;  // set if another byte of the number follows

bool IsZero(float x) { return std::bit_cast<std::uint32_t>(x) << 1 == 0; }

std::size_t GapBytes(std::uint32_t gap) {
  std::size_t bytes = 1;
  for (; gap > kSevenBits; gap >>= 7) ++bytes;
  return bytes;
}

// Calls visit(zeros before it, value) for each value that is not zero.
template <typename Visit>
void ForEachValue(std::size_t n, const float* in, Visit visit) {
  std::uint32_t gap = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (IsZero(in[i])) {
      ++gap;
    } else {
      visit(std::exchange(gap, 0), in[i]);
    }
  }
}

Status Malformed(std::string what) { return Fail(ErrorCode::kMalformed, "largest values: " + std::move(what)); }

// Reads the next gap. False: it is cut off, or has more than 32 bits.
bool TakeGap(std::span<const std::byte>* in, std::uint32_t* gap) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    if (in->empty()) return false;
    const auto byte = std::to_integer<std::uint32_t>(in->front());
    *in = in->subspan(1);
    value |= std::uint64_t{byte & kSevenBits} << shift;
    if ((byte & kMore) != 0) continue;
    *gap = static_cast<std::uint32_t>(value);
    return value <= UINT32_MAX;
  }
  return false;
}

}  // namespace

std::size_t SparseBytes(std::size_t n, const float* in) {
  std::size_t bytes = kSparseBytesMin;
  ForEachValue(n, in, [&](std::uint32_t gap, float) { bytes += sizeof(float) + GapBytes(gap); });
  return bytes;
}

std::byte* EncodeSparse(std::size_t n, const float* in, std::byte* out) {
  std::uint32_t count = 0;
  std::byte* to = out + kSparseBytesMin;
  ForEachValue(n, in, [&](std::uint32_t, float value) {
    std::memcpy(to, &value, sizeof(value));
    to += sizeof(value);
    ++count;
  });
  std::memcpy(out, &count, sizeof(count));
  ForEachValue(n, in, [&](std::uint32_t gap, float) {
    for (; gap > kSevenBits; gap >>= 7) *to++ = static_cast<std::byte>((gap & kSevenBits) | kMore);
    *to++ = static_cast<std::byte>(gap);
  });
  return to;
}

Status DecodeSparse(std::size_t n, std::span<const std::byte> in, float* out) {
  std::uint32_t count = 0;
  if (in.size() < kSparseBytesMin) return Malformed(fmt::format("{} bytes, expected at least 4", in.size()));
  std::memcpy(&count, in.data(), sizeof(count));
  if (count > n) return Malformed(fmt::format("{} of them, expected at most {}", count, n));
  const std::size_t least = kSparseBytesMin + count * (sizeof(float) + 1);
  if (in.size() < least)
    return Malformed(fmt::format("{} bytes, expected at least {} for {} of them", in.size(), least, count));
  if (n != 0) std::memset(out, 0, n * sizeof(float));
  const std::byte* values = in.data() + kSparseBytesMin;
  std::span<const std::byte> gaps = in.subspan(kSparseBytesMin + count * sizeof(float));
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < count; ++i, ++at, values += sizeof(float)) {
    std::uint32_t gap = 0;
    if (!TakeGap(&gaps, &gap))
      return Malformed(fmt::format(
          "the number of zeros before value {} of {} (counted from 0) is cut off or has more than 32 bits", i, count));
    at += gap;
    if (at >= n)
      return Malformed(
          fmt::format("value {} of {} (counted from 0) has position {}, expected below {}", i, count, at, n));
    std::memcpy(out + at, values, sizeof(float));
  }
  if (!gaps.empty()) return Malformed(fmt::format("{} bytes behind the last position", gaps.size()));
  return {};
}

}  // namespace tarn::kernels
