#include "kernels/draw.h"

#include <algorithm>

#include "kernels/math.h"
#include "kernels/normal_quantile.h"

namespace tarn::kernels {
namespace {

double DrawAny(const Distribution& d, SplitMix* rng) {
  using Kind = Distribution::Kind;
  if (d.kind == Kind::kConstant) return d.a;
  const double unit = UnitDouble(rng->Next()) + 0x1.0p-54;  // never 0
  switch (d.kind) {
    case Kind::kConstant: break;
    case Kind::kUniform: return d.a + (d.b - d.a) * unit;
    case Kind::kExponential: return -d.a * math::Log(unit);
    case Kind::kLognormal: return d.a * math::Exp(d.b * math::NormalQuantile(unit));
    case Kind::kPareto: return d.a * math::Exp(-math::Log(unit) / d.b);
  }
  return d.a;
}

}  // namespace

double Draw(const Distribution& distribution, SplitMix* rng) { return std::min(DrawAny(distribution, rng), kDrawMax); }

}  // namespace tarn::kernels
