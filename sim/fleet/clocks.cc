#include "sim/fleet/clocks.h"

#include <cmath>

namespace tarn::sim {
namespace {

// The time of day at the beginning of a run, and of one that continues from its checkpoint.
constexpr TimeUs kUnixUs = 1'700'000'000'000'000, kLaterUnixUs = kUnixUs + 1'000'000'000'000;

}  // namespace

SimClocks::SimClocks(const Scenario* scenario, const EventQueue* events, bool later)
    : scenario_(scenario), events_(events) {
  for (std::uint32_t i = 0; i < scenario->shards; ++i) unix_us_at_zero_[i] = later ? kLaterUnixUs : kUnixUs;
}

// The constant rate of a machine's clock: between 1 - drift and 1 + drift.
double SimClocks::RateOf(NodeId node) const {
  const double drift = scenario_->faults.clock_drift;
  if (drift == 0) return 1;
  return 1 + drift * (2 * SplitMix(Mix64(scenario_->draw ^ (0x6472 + node))).Unit() - 1);
}

TimeUs SimClocks::NowOf(const Process& process) const {
  return TimeUs(double(events_->now()) * RateOf(process.node)) + process.ahead;
}

TimeUs SimClocks::ToFleetTime(const Process& process, TimeUs at) const {
  const double rate = RateOf(process.node);
  if (rate == 1 || at > TimeUs(1e15)) return at - process.ahead;
  TimeUs when = TimeUs(double(at - process.ahead) / rate);
  while (TimeUs(double(when) * rate) + process.ahead < at) ++when;
  return when;
}

void SimClocks::Disturb(SplitMix* dice) {
  if (scenario_->life.expire_seconds == 0) return;
  for (auto& [shard, unix_us] : unix_us_at_zero_) {
    if (dice->Chance(0.3)) unix_us += TimeUs(1e6 * std::pow(10.0, 4 * dice->Unit()));
    if (dice->Chance(0.2)) unix_us -= TimeUs(dice->Below(100'000'000));
  }
}

}  // namespace tarn::sim
