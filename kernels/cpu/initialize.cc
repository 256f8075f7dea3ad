#include "kernels/initialize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/hash.h"
#include "kernels/normal_quantile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/initialize.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

// Number of values processed at a time, of one row or several. It is large enough for the values in the tails, a
// seventh, to fill several vectors, whose long chains of operations then overlap.
constexpr std::size_t kChunk = 256;
constexpr std::size_t kLanes = 8;  // loops run over whole groups of this size; surplus results are ignored

// Word i of SplitMix(state) is Mix64(state + (i + 1) * kStep).
constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
static_assert(SplitMix(0).Next() == Mix64(kStep));

constexpr std::size_t Padded(std::size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Words of SplitMix(state) as the middles of 2^52 equal parts of (0, 1): never 0 or 1, and 1 - u is exact.
void Units(std::size_t n, std::uint64_t state, double* HWY_RESTRICT u) {
  constexpr std::uint64_t kTwo52 = 0x4330000000000000ULL;  // the bits of 2^52; a number below 2^52 may be or-ed in
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

// Whether u may be in a far tail (IsFarTail), where u or 1 - u is below e^-25, about 1.4e-11. Cheaper than IsFarTail.
bool MayBeFar(double u) { return u < 1e-10 || u > 1.0 - 1e-10; }

// Up to kChunk values from the uniform `u`: first the central formula for all, then the tail formulas for those in the
// tails.
void NormalChunk(std::size_t n, const double* u, double mean, double deviation, float* out) {
  alignas(64) double z[kChunk], tail_u[kChunk + 1], tail_z[kChunk];
  std::size_t tail_at[kChunk + 1];
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

void NormalLoop(std::size_t rows, std::size_t dim, std::uint64_t salt, const Key* keys, double mean, double deviation,
                float* out) {
  alignas(64) double u[kChunk + kLanes];
  std::size_t filled = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::uint64_t state = HashCombine(salt, keys[row]);
    for (std::size_t i = 0; i < dim;) {
      const std::size_t count = std::min(kChunk - filled, dim - i);
      Units(count, state + i * kStep, u + filled);
      filled += count;
      i += count;
      if (filled < kChunk && (row + 1 < rows || i < dim)) continue;
      NormalChunk(filled, u, mean, deviation, out);
      out += filled;
      filled = 0;
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(NormalLoop);

void InitializeRows(const InitializerSpec& spec, std::uint64_t table_salt, std::span<const Key> keys, std::size_t dim,
                    float* out) {
  const std::size_t values = keys.size() * dim;
  const double a = double(spec.a), b = double(spec.b);
  switch (spec.kind) {
    case InitializerKind::kZero: std::fill_n(out, values, 0.0f); return;
    case InitializerKind::kConstant: std::fill_n(out, values, spec.a); return;
    case InitializerKind::kUniform:
      for (const Key key : keys) {
        SplitMix words(HashCombine(table_salt, key));
        for (std::size_t i = 0; i < dim; ++i) *out++ = float(a + (b - a) * words.Unit());
      }
      return;
    case InitializerKind::kNormal:
      HWY_DYNAMIC_DISPATCH(NormalLoop)(keys.size(), dim, table_salt, keys.data(), a, b, out);
      return;
  }
}

void InitializeRow(const InitializerSpec& spec, std::uint64_t table_salt, Key key, std::span<float> row) {
  InitializeRows(spec, table_salt, {&key, 1}, row.size(), row.data());
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
