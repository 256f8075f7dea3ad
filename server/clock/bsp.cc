// Bulk synchronous parallel: a pull for clock c sees every push of the clocks before c (Valiant, "A bridging model for
// parallel computation", CACM 1990).
#include "server/clock/policies.h"

namespace tarn::server {

namespace {

class Bsp final : public ConsistencyPolicy {
 public:
  using ConsistencyPolicy::ConsistencyPolicy;
  Clock WantedClock(Incarnation, Clock use, const Cohort&) const override { return use; }
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeBsp(const TableSpec& spec) { return std::make_unique<Bsp>(spec); }

}  // namespace tarn::server
