#include "kernels/initialize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/hash.h"
#include "kernels/cpu/normal_quantile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/initialize.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

constexpr std::size_t kChunk = 64;  // values at a time
constexpr std::size_t kLanes = 8;   // loops run over whole groups of these; what is beyond the row is left

// Word i of SplitMix(state) is Mix64(state + (i + 1) * kStep).
constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
static_assert(SplitMix(0).Next() == Mix64(kStep));

constexpr std::size_t Padded(std::size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Words of SplitMix(state) as the middles of 2^52 equal parts of (0, 1): never 0 or 1, and 1 - u is exact.
void Units(std::size_t n, std::uint64_t state, double* HWY_RESTRICT u) {
  constexpr std::uint64_t kTwo52 = 0x4330000000000000ULL;  // the bits of 2^52: a number below it may be put in
  for (std::size_t i = 0; i < Padded(n); ++i) {
    const std::uint64_t word = Mix64(state + (i + 1) * kStep);
    u[i] = (std::bit_cast<double>((word >> 12) | kTwo52) - 0x1.0p52 + 0.5) * 0x1.0p-52;
  }
}

void CentralQuantiles(std::size_t n, const double* HWY_RESTRICT u, double* HWY_RESTRICT z) {
  for (std::size_t i = 0; i < Padded(n); ++i) z[i] = math::CentralQuantile(u[i] - 0.5);
}

void TailQuantiles(std::size_t n, const double* HWY_RESTRICT u, double* HWY_RESTRICT z) {
  for (std::size_t i = 0; i < Padded(n); ++i) z[i] = math::TailQuantile(u[i]);
}

// Whether the distance has to be looked at: e^-25 is about 1.4e-11.
bool MayBeFar(double u) { return u < 1e-10 || u > 1.0 - 1e-10; }

// Up to kChunk values from the words behind `state`: the centre for all of them, then the tails for those that lie
// there.
void NormalChunk(std::size_t n, std::uint64_t state, double mean, double deviation, float* out) {
  alignas(64) double u[kChunk], z[kChunk], tail_u[kChunk], tail_z[kChunk];
  std::size_t tail_at[kChunk];
  Units(n, state, u);
  CentralQuantiles(n, u, z);
  std::size_t tails = 0;
  for (std::size_t i = 0; i < n; ++i) {
    tail_u[tails] = u[i];
    tail_at[tails] = i;
    tails += math::IsCentral(u[i] - 0.5) ? 0 : 1;
  }
  for (std::size_t i = tails; i < Padded(tails); ++i) tail_u[i] = 0.01;
  TailQuantiles(tails, tail_u, tail_z);
  for (std::size_t i = 0; i < tails; ++i)
    z[tail_at[i]] = MayBeFar(tail_u[i]) ? math::NormalQuantile(tail_u[i]) : tail_z[i];
  for (std::size_t i = 0; i < n; ++i) out[i] = float(mean + deviation * z[i]);
}

void NormalLoop(std::size_t n, std::uint64_t state, double mean, double deviation, float* out) {
  for (std::size_t i = 0; i < n; i += kChunk)
    NormalChunk(std::min(kChunk, n - i), state + i * kStep, mean, deviation, out + i);
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(NormalLoop);

void InitializeRow(const InitializerSpec& spec, std::uint64_t table_salt, Key key, std::span<float> row) {
  const std::uint64_t state = HashCombine(table_salt, key);
  SplitMix words(state);
  const double a = double(spec.a), b = double(spec.b);
  switch (spec.kind) {
    case InitializerKind::kZero: std::fill(row.begin(), row.end(), 0.0f); return;
    case InitializerKind::kConstant: std::fill(row.begin(), row.end(), spec.a); return;
    case InitializerKind::kUniform:
      for (float& value : row) value = float(a + (b - a) * words.Unit());
      return;
    case InitializerKind::kNormal: HWY_DYNAMIC_DISPATCH(NormalLoop)(row.size(), state, a, b, row.data()); return;
  }
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
