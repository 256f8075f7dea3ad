#include "server/store/fragment_life.h"

#include <algorithm>

#include "core/hash.h"
#include "core/limits.h"

namespace tarn::server {

namespace {

constexpr std::uint64_t kAdmission = 0x61646d6974;
// A sweep starts when one in so many rows of a fragment has expired.
constexpr std::uint64_t kRowsPerExpired = 64;

}  // namespace

std::uint32_t FragmentLife::CountOf(Key key) const {
  return table_.spec().life.admit_count > 1 && candidates_ ? candidates_->Count(key) : 0;
}

bool FragmentLife::IsDrawn(Key key, Clock clock) const {
  const LifeSpec& life = table_.spec().life;
  return life.admit_probability >= 1 || UnitDouble(HashCombine(HashCombine(table_.salt() ^ kAdmission, key),
                                                               clock.value)) < double{life.admit_probability};
}

Candidates& FragmentLife::EnsureCandidates() {
  if (!candidates_)
    candidates_ = std::make_unique<Candidates>(table_.salt(), context_->partition_bits,
                                               limits::kCandidatesMax >> context_->partition_bits);
  return *candidates_;
}

void FragmentLife::Add(RowLife life) {
  const LifeRules& rules = *table_.rules();
  if (rules.expires()) standings_.Add(rules.Standing(life), rules.step());
}

void FragmentLife::Drop(RowLife life) {
  const LifeRules& rules = *table_.rules();
  if (rules.expires()) standings_.Drop(rules.Standing(life), rules.step());
}

void FragmentLife::OnExpiredRemoved() {
  if (expired_ != 0 && --expired_ == 0) verdicts_.Clear();
}

void FragmentLife::Decide(std::uint64_t rows) {
  const LifeRules& rules = *table_.rules();
  const std::uint64_t before = standings_.rows();
  const std::uint32_t least =
      standings_.Decide(rules.LeastStanding(table_.boundary()), rules.RowsMax(context_->partition_bits), rules.step());
  verdicts_.Add({table_.boundary(), least});
  expired_ += before - standings_.rows();
  context_->counters.expired += before - standings_.rows();
  decided_in_sweep_ = true;
  if (sweep_due_ || expired_ * kRowsPerExpired < rows || expired_ == 0) return;
  sweep_due_ = true;
  ++context_->sweeps_due;
}

bool FragmentLife::EndSweep() {
  if (decided_in_sweep_ && expired_ != 0) return false;
  expired_ = 0;
  verdicts_.Clear();
  sweep_due_ = false;
  --context_->sweeps_due;
  return true;
}

}  // namespace tarn::server
