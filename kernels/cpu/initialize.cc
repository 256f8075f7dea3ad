#include "kernels/initialize.h"

#include <algorithm>

#include "core/hash.h"
#include "kernels/cpu/normal_quantile.h"

namespace tarn::kernels {
namespace {

// The middle of one of 2^52 equal parts of (0, 1): never 0 or 1, and 1 - u is exact.
double OpenUnit(std::uint64_t word) { return (double(word >> 12) + 0.5) * 0x1.0p-52; }

}  // namespace

void InitializeRow(const InitializerSpec& spec, std::uint64_t table_salt, Key key, std::span<float> row) {
  SplitMix words(HashCombine(table_salt, key));
  const double a = double(spec.a), b = double(spec.b);
  switch (spec.kind) {
    case InitializerKind::kZero: std::fill(row.begin(), row.end(), 0.0f); return;
    case InitializerKind::kConstant: std::fill(row.begin(), row.end(), spec.a); return;
    case InitializerKind::kUniform:
      for (float& value : row) value = float(a + (b - a) * words.Unit());
      return;
    case InitializerKind::kNormal:
      for (float& value : row) value = float(a + b * math::NormalQuantile(OpenUnit(words.Next())));
      return;
  }
}

}  // namespace tarn::kernels
