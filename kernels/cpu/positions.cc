#include "kernels/positions.h"

#include "core/hash.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/positions.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

void Mix(std::size_t n, const Key* keys, std::uint64_t salt, Position* positions) {
  for (std::size_t i = 0; i < n; ++i) positions[i] = Mix64(keys[i] ^ salt);
}

void Unmix(std::size_t n, const Position* positions, std::uint64_t salt, Key* keys) {
  for (std::size_t i = 0; i < n; ++i) keys[i] = Unmix64(positions[i]) ^ salt;
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(Mix);
HWY_EXPORT(Unmix);

void PositionsOf(std::size_t n, const Key* keys, std::uint64_t salt, Position* positions) {
  HWY_DYNAMIC_DISPATCH(Mix)(n, keys, salt, positions);
}

void KeysAt(std::size_t n, const Position* positions, std::uint64_t salt, Key* keys) {
  HWY_DYNAMIC_DISPATCH(Unmix)(n, positions, salt, keys);
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
