#include "kernels/elementwise.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

void FillLoop(std::size_t n, float value, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = value;
}

void AddLoop(std::size_t n, const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) out[i] += in[i];
}

void ScaleLoop(std::size_t n, float factor, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] *= factor;
}

void ReluLoop(std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = out[i] > 0.0f ? out[i] : 0.0f;
}

void ReluBackwardLoop(std::size_t n, const float* HWY_RESTRICT y, float* HWY_RESTRICT dy) {
  for (std::size_t i = 0; i < n; ++i) {
    const float kept = dy[i];
    dy[i] = y[i] == 0.0f ? 0.0f : kept;
  }
}

HWY_INLINE std::uint32_t IsNotFinite(float x) {
  constexpr std::uint32_t kExponent = 0x7f800000;  // all of its bits: infinite or NaN
  return (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent ? 1 : 0;
}

bool AllFiniteLoop(std::size_t n, const float* in) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < n; ++i) found |= IsNotFinite(in[i]);
  return found == 0;
}

bool CopyAllFiniteLoop(std::size_t n, const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float x = in[i];
    out[i] = x;
    found |= IsNotFinite(x);
  }
  return found == 0;
}

double SumLoop(std::size_t n, const float* in) {
  return SumOfTerms(n, [in](std::size_t i) { return double(in[i]); });
}

double DotLoop(std::size_t n, const float* a, const float* b) {
  return SumOfTerms(n, [a, b](std::size_t i) { return double(a[i]) * double(b[i]); });
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(FillLoop);
HWY_EXPORT(AddLoop);
HWY_EXPORT(ScaleLoop);
HWY_EXPORT(ReluLoop);
HWY_EXPORT(ReluBackwardLoop);
HWY_EXPORT(AllFiniteLoop);
HWY_EXPORT(CopyAllFiniteLoop);
HWY_EXPORT(SumLoop);
HWY_EXPORT(DotLoop);

void Fill(std::size_t n, float value, float* out) { HWY_DYNAMIC_DISPATCH(FillLoop)(n, value, out); }

void Add(std::size_t n, const float* in, float* out) { HWY_DYNAMIC_DISPATCH(AddLoop)(n, in, out); }

void Scale(std::size_t n, float factor, float* out) { HWY_DYNAMIC_DISPATCH(ScaleLoop)(n, factor, out); }

void Relu(std::size_t n, float* out) { HWY_DYNAMIC_DISPATCH(ReluLoop)(n, out); }

void ReluBackward(std::size_t n, const float* y, float* dy) { HWY_DYNAMIC_DISPATCH(ReluBackwardLoop)(n, y, dy); }

bool AllFinite(std::size_t n, const float* in) { return HWY_DYNAMIC_DISPATCH(AllFiniteLoop)(n, in); }

bool CopyAllFinite(std::size_t n, const float* in, float* out) {
  return HWY_DYNAMIC_DISPATCH(CopyAllFiniteLoop)(n, in, out);
}

double Sum(std::size_t n, const float* in) { return HWY_DYNAMIC_DISPATCH(SumLoop)(n, in); }

double Dot(std::size_t n, const float* a, const float* b) { return HWY_DYNAMIC_DISPATCH(DotLoop)(n, a, b); }

double SquaredNorm(std::size_t n, const float* in) { return Dot(n, in, in); }

float ClipScale(double squared_norm, float norm_max) {
  if (norm_max == 0.0f) return 1.0f;
  if (!std::isfinite(squared_norm)) return NAN;
  const double norm = std::sqrt(squared_norm);
  return norm > double(norm_max) ? float(double(norm_max) / norm) : 1.0f;
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE
