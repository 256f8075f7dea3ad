// Stale synchronous parallel: a pull for clock c sees every push of the clocks before c - s (Ho et al., "More effective
// distributed ML via a stale synchronous parallel parameter server", NIPS 2013).
//
// With a staleness range r it is dynamic (Zhao et al., "Dynamic stale synchronous parallel distributed training for
// deep learning", ICDCS 2019): a worker that is more than s clocks ahead of the slowest may continue, up to s + r
// clocks ahead, if it would then wait less for the slowest. Rule C9.
#include <algorithm>
#include <limits>

#include "server/clock/policies.h"

namespace tarn::server {

namespace {

using Member = Cohort::Member;

// When a worker will have ticked to `clock`, if it does not wait and takes as long for each clock as for its last.
TimeUs TickTime(const Member& member, std::uint64_t clock) {
  return member.ticked_at + (clock - member.tick.value) * member.clock_us;
}

// The worker at the minimum clock whose next tick is predicted last. Null: the pace of one of these workers is unknown.
const Member* Slowest(const Cohort& cohort) {
  const Member* slowest = nullptr;
  for (const auto& [incarnation, member] : cohort.members()) {
    if (member.entry.state == WorkerState::kEnded || member.tick != cohort.minimum()) continue;
    if (member.clock_us == 0) return nullptr;
    if (slowest == nullptr || TickTime(member, member.tick.value + 1) > TickTime(*slowest, slowest->tick.value + 1))
      slowest = &member;
  }
  return slowest;
}

TimeUs Distance(TimeUs a, TimeUs b) { return a > b ? a - b : b - a; }

// The number of further clocks, at most `most`, after which a worker that is about to begin clock `use` should wait, so
// that it begins to wait at the time nearest to a tick of the slowest worker (the synchronization controller, algorithm
// 2 of the paper).
std::uint64_t ClocksBeforeWait(const Member& worker, const Member& slowest, Clock use, std::uint64_t most) {
  const TimeUs first = TickTime(slowest, slowest.tick.value + 1);
  std::uint64_t best = 0;
  TimeUs least = std::numeric_limits<TimeUs>::max();
  for (std::uint64_t more = 0; more <= most; ++more) {
    const TimeUs stop = TickTime(worker, use.value + more);
    const TimeUs before = stop <= first ? first : first + (stop - first) / slowest.clock_us * slowest.clock_us;
    const TimeUs wait = std::min(Distance(stop, before), Distance(before + slowest.clock_us, stop));
    if (wait >= least) continue;
    least = wait;
    best = more;
  }
  return best;
}

class Ssp final : public ConsistencyPolicy {
 public:
  using ConsistencyPolicy::ConsistencyPolicy;
  Clock WantedClock(Incarnation worker, Clock use, const Cohort& cohort) const override {
    const Clock wanted(use.value - std::min<std::uint64_t>(use.value, consistency().staleness));
    return wanted > cohort.minimum() && MayContinue(worker, use, cohort) ? cohort.minimum() : wanted;
  }

 private:
  bool MayContinue(Incarnation worker, Clock use, const Cohort& cohort) const {
    const std::uint64_t ahead = use.value - cohort.minimum().value;
    const std::uint64_t bound = std::uint64_t{consistency().staleness} + consistency().staleness_range;
    const auto own = cohort.members().find(worker);
    if (ahead > bound || own == cohort.members().end() || own->second.clock_us == 0 || use < own->second.tick)
      return false;
    const Member* slowest = Slowest(cohort);
    return slowest != nullptr && ClocksBeforeWait(own->second, *slowest, use, bound + 1 - ahead) > 0;
  }
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> MakeSsp(const TableSpec& spec) { return std::make_unique<Ssp>(spec); }

}  // namespace tarn::server
