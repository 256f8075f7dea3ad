#include "server/store/life.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"

namespace tarn::server {

using kernels::math::Log2;

namespace {

constexpr std::uint32_t kTimeMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kPeriodsPerLife = 16;  // boundaries in a lifetime that is given in seconds
constexpr std::uint32_t kStepsPerPeriod = 8;   // classes of standings between two boundaries

std::uint32_t Clamped(double time) {
  return time >= kTimeMax ? kTimeMax : static_cast<std::uint32_t>(std::max(time, 0.0));
}

}  // namespace

LifeRules::LifeRules(const LifeSpec& spec)
    : decay_(spec.score_decay), rows_max_(spec.rows_max), in_seconds_(spec.expire_seconds != 0) {
  half_life_ = spec.score_decay == 1 ? 0 : -1 / Log2(decay_);
  if (in_seconds_) {
    lifetime_ = std::max(1u, Clamped(std::ceil(spec.expire_seconds)));
    period_ = (lifetime_ + kPeriodsPerLife - 1) / kPeriodsPerLife;
  } else {
    period_ = static_cast<std::uint32_t>(spec.sweep_clocks);
    if (spec.expire_clocks != 0) lifetime_ = static_cast<std::uint32_t>(spec.expire_clocks);
    if (spec.min_score != 0) lifetime_ = std::max(1u, Clamped(-Log2(spec.min_score) * half_life_));
  }
  step_ = std::max(1u, period_ / kStepsPerPeriod);
  period_ -= period_ % step_;  // so that boundaries lie between classes
}

RowLife LifeRules::Touched(RowLife life, std::uint32_t now) const {
  const std::uint32_t age = now > life.last ? now - life.last : 0;
  const double score = decay_ == 1 ? life.score : life.score * kernels::math::Power(decay_, age);
  return {std::max(now, life.last), static_cast<float>(score + 1)};
}

std::uint32_t LifeRules::Standing(RowLife life) const {
  if (half_life_ == 0) return life.last;
  return Clamped(life.last + Log2(life.score) * half_life_);
}

std::uint32_t LifeRules::LeastStanding(std::uint32_t boundary) const {
  if (lifetime_ == 0 || boundary <= lifetime_) return 0;
  const std::uint32_t least = boundary - lifetime_;
  return least - least % step_;
}

}  // namespace tarn::server
