// Stale synchronous parallel: a pull for clock c sees every push of the clocks before c - s (Ho et al., "More effective
// distributed ML via a stale synchronous parallel parameter server", NIPS 2013).
#include <algorithm>

#include "server/clock/policies.h"

namespace tarn::server {

namespace {

class Ssp final : public ConsistencyPolicy {
 public:
  using ConsistencyPolicy::ConsistencyPolicy;
  Clock WantedClock(Incarnation, Clock use, const Cohort&) const override {
    return Clock(use.value - std::min<std::uint64_t>(use.value, consistency().staleness));
  }
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeSsp(const TableSpec& spec) { return std::make_unique<Ssp>(spec); }

}  // namespace tarn::server
