// Asynchronous parallel: a pull returns the current rows.
#include "server/clock/policies.h"

namespace tarn::server {

namespace {

class Asp final : public ConsistencyPolicy {
 public:
  using ConsistencyPolicy::ConsistencyPolicy;
  Clock WantedClock(Incarnation, Clock, const Cohort&) const override { return Clock(0); }
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeAsp(const TableSpec& spec) { return std::make_unique<Asp>(spec); }

}  // namespace tarn::server
