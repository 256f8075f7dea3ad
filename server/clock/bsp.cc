// Bulk synchronous parallel: a pull for clock c sees every push of the clocks before c (Valiant, "A bridging model for
// parallel computation", CACM 1990).
//
// With b backup workers it sees those of the workers that finish a clock first: of n workers, n - b or more (Chen et
// al., "Revisiting distributed synchronous SGD", 2016; K-sync SGD of Dutta et al., AISTATS 2018, with K = n - b). The
// step is their mean. Gradients that arrive later are discarded. Rule C8.
#include <algorithm>
#include <utility>

#include "server/clock/policies.h"

namespace tarn::server {

namespace {

class Bsp final : public ConsistencyPolicy {
 public:
  using ConsistencyPolicy::ConsistencyPolicy;
  Clock WantedClock(Incarnation, Clock use, const Cohort&) const override { return use; }
  Clock OpenClock(const Cohort& cohort) const override { return cohort.Open(consistency().backup_workers); }
  Count Choose(Clock clock, std::span<const Contribution> gathered, const Cohort& cohort) const override;
};

// Assignments and deletions always count, also those of late workers, because only gradients are averaged.
ConsistencyPolicy::Count Bsp::Choose(Clock clock, std::span<const Contribution> gathered, const Cohort& cohort) const {
  if (consistency().backup_workers == 0) return ConsistencyPolicy::Choose(clock, gathered, cohort);
  Count count{.counts = {}, .divisor = std::max(cohort.Finished(clock), 1u)};
  count.counts.reserve(gathered.size());
  for (const Contribution& c : gathered)
    count.counts.push_back(c.action != PushAction::kStep || cohort.HasFinished(c.incarnation, clock));
  return count;
}

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeBsp(const TableSpec& spec) { return std::make_unique<Bsp>(spec); }

}  // namespace tarn::server
