#include "worker/train/delays.h"

#include <algorithm>

#include "kernels/math.h"
#include "kernels/normal_quantile.h"

namespace tarn::worker {
namespace {

constexpr std::uint64_t kDelaysSalt = 0x64656c617973;

double DrawAny(const Distribution& d, SplitMix* rng) {
  namespace math = kernels::math;
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

BatchDelays::BatchDelays(const Job& job, std::uint32_t rank)
    : delays_(job.delays), rng_(HashCombine(HashCombine(job.job.seed, kDelaysSalt), rank)) {
  factor_ = Draw(delays_.worker, &rng_);
  const std::uint32_t first_straggler = job.fleet.workers - std::min(delays_.stragglers, job.fleet.workers);
  if (rank >= first_straggler) factor_ *= delays_.straggler_factor;
}

TimeUs BatchDelays::Next(std::uint64_t batches) {
  double seconds = 0;
  for (std::uint64_t i = 0; i < batches; ++i) {
    seconds += factor_ * Draw(delays_.batch, &rng_);
    if (delays_.pause_probability > 0 && rng_.Chance(delays_.pause_probability)) seconds += Draw(delays_.pause, &rng_);
  }
  return static_cast<TimeUs>(std::min(seconds, kDrawMax) * 1e6);
}

}  // namespace tarn::worker
