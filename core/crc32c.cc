#include "core/crc32c.h"

#include <array>
#include <cstring>

#include "core/error.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tarn {
namespace {

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// table[k][b]: the sum of byte b followed by k zero bytes, so that eight bytes are processed at once ("slicing by 8").
constexpr Table MakeTable() {
  Table table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1u) != 0 ? 0x82f63b78u : 0u);
    table[0][byte] = sum;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 0xffu];
  return table;
}

constexpr Table kTable = MakeTable();

std::uint64_t LittleWord(const std::byte* at) {
  std::uint64_t word = 0;
  for (unsigned i = 0; i < 8; ++i) word |= std::uint64_t(at[i]) << (8 * i);
  return word;
}

}  // namespace

namespace internal {

std::uint32_t TableCrc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t sum = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t word = LittleWord(at) ^ sum;
    sum = 0;
    for (std::size_t i = 0; i < 8; ++i) sum ^= kTable[7 - i][(word >> (8 * i)) & 0xffu];
  }
  for (; left > 0; --left, ++at) sum = (sum >> 8) ^ kTable[0][(sum ^ std::uint32_t(*at)) & 0xffu];
  return ~sum;
}

#if defined(__x86_64__)

bool HasHardwareCrc32c() { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) std::uint32_t HardwareCrc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint64_t sum = std::uint32_t(~before);
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    sum = _mm_crc32_u64(sum, word);
  }
  std::uint32_t tail = std::uint32_t(sum);
  for (; left > 0; --left, ++at) tail = _mm_crc32_u8(tail, static_cast<unsigned char>(*at));
  return ~tail;
}

#else

bool HasHardwareCrc32c() { return false; }

std::uint32_t HardwareCrc32c(std::span<const std::byte>, std::uint32_t) {
  TARN_CHECK(false, "no CRC-32C instruction on this processor");
}

#endif

}  // namespace internal

std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  static const bool kHardware = internal::HasHardwareCrc32c();
  return kHardware ? internal::HardwareCrc32c(bytes, before) : internal::TableCrc32c(bytes, before);
}

}  // namespace tarn
