#include "kernels/key_delta.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/key_delta.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

// Writes a block at `out` and returns its end. Each difference is stored as a whole word; the next one overwrites its
// surplus bytes.
std::byte* EncodeBlock(std::size_t n, const Key* HWY_RESTRICT keys, std::byte* HWY_RESTRICT out) {
  Key least = keys[0], most = keys[0];
  for (std::size_t i = 1; i < n; ++i) {
    least = keys[i] < least ? keys[i] : least;
    most = keys[i] > most ? keys[i] : most;
  }
  const auto width = static_cast<std::uint8_t>((std::bit_width(most - least) + 7) / 8);
  std::memcpy(out, &width, 1);
  std::memcpy(out + 1, &least, sizeof(Key));
  out += 9;
  for (std::size_t i = 0; i < n; ++i, out += width) {
    const Key difference = keys[i] - least;
    std::memcpy(out, &difference, sizeof(Key));
  }
  return out;
}

// Returns whether all keys fit in 64 bits. May read kKeySlack bytes beyond the block.
bool DecodeBlock(std::size_t n, std::size_t width, const std::byte* HWY_RESTRICT in, Key* HWY_RESTRICT out) {
  Key least;
  std::memcpy(&least, in, sizeof(Key));
  in += sizeof(Key);
  const Key mask = width == sizeof(Key) ? ~Key{0} : (Key{1} << (8 * width)) - 1;
  Key wrapped = 0;
  for (std::size_t i = 0; i < n; ++i) {
    Key difference;
    std::memcpy(&difference, in + i * width, sizeof(Key));
    out[i] = least + (difference & mask);
    wrapped |= out[i] < least ? 1 : 0;
  }
  return wrapped == 0;
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(EncodeBlock);
HWY_EXPORT(DecodeBlock);

std::size_t EncodeKeys(std::span<const Key> keys, std::byte* out) {
  constexpr std::size_t kTriedKeys = 4 * kKeyBlock;  // after so many keys a list may be abandoned
  const auto worth = [](std::size_t n, std::size_t bytes) { return bytes <= n * sizeof(Key) / 4 * 3; };
  std::byte* to = out;
  for (std::size_t i = 0; i < keys.size(); i += kKeyBlock) {
    to = HWY_DYNAMIC_DISPATCH(EncodeBlock)(std::min(kKeyBlock, keys.size() - i), keys.data() + i, to);
    if (i + kKeyBlock == kTriedKeys && !worth(kTriedKeys, static_cast<std::size_t>(to - out))) return 0;
  }
  std::memset(to, 0, kKeySlack);
  const auto bytes = static_cast<std::size_t>(to - out) + kKeySlack;
  return worth(keys.size(), bytes) ? bytes : 0;
}

bool DecodeKeys(std::size_t n, std::span<const std::byte> in, Key* out) {
  if (in.size() < DeltaBytesMin(n)) return false;
  std::size_t left = in.size() - kKeySlack;  // of blocks
  const std::byte* from = in.data();
  for (std::size_t i = 0; i < n; i += kKeyBlock) {
    const std::size_t count = std::min(kKeyBlock, n - i);
    if (left < 9) return false;
    const auto width = std::to_integer<std::size_t>(from[0]);
    if (width > sizeof(Key) || left < 9 + count * width) return false;
    if (!HWY_DYNAMIC_DISPATCH(DecodeBlock)(count, width, from + 1, out + i)) return false;
    from += 9 + count * width;
    left -= 9 + count * width;
  }
  constexpr std::byte kZeros[kKeySlack] = {};
  return left == 0 && std::memcmp(from, kZeros, kKeySlack) == 0;
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
