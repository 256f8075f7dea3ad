#include "scheduler/membership/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::scheduler {

Agreement::Agreement(Membership* membership, Notes* notes, TimeUs lease_us)
    : membership_(membership), notes_(notes), lease_us_(lease_us) {}

void Agreement::Open(Purpose purpose, TimeUs now) {
  stage_ = Stage::kReporting;
  purpose_ = purpose;
  drain_deadline_ = now + lease_us_;
  warned_ = false;
  membership_->current_view()->OpenProposal(purpose == Purpose::kDrainedCut);
}

std::optional<Clock> Agreement::FreeClock(TimeUs now) {
  if (purpose_ != Purpose::kDrainedCut) {
    if (!AllReported()) return std::nullopt;
    return ClockThatNobodyPassed();
  }
  if (AllDrained()) return ClockThatNobodyPassed();
  if (now < drain_deadline_) return std::nullopt;
  if (!std::exchange(warned_, true)) WarnOfUndrained();
  // Always waits for the verdict of a worker that is being fenced, because it decides which of its pushes count, and
  // for programs that keep state, which save it after their next tick (rule K9).
  if (membership_->AnyFencing() || std::ranges::any_of(Undrained(), &WorkerNode::keeps_state)) return std::nullopt;
  return ClockThatNobodyPassed();
}

bool Agreement::AllReported() const {
  const std::uint64_t id = membership_->view().proposal.id;
  const auto reported = [id](const WorkerNode* worker) { return worker->proposal == id; };
  return !membership_->AnyFencing() && std::ranges::all_of(membership_->workers().Live(), reported);
}

std::vector<const WorkerNode*> Agreement::Undrained() const {
  std::vector<const WorkerNode*> workers;
  for (const WorkerNode* worker : membership_->workers().Live())
    if (worker->drained != membership_->view().proposal.id) workers.push_back(worker);
  return workers;
}

Clock Agreement::ClockThatNobodyPassed() const {
  const Workers& workers = membership_->workers();
  const auto live = workers.Live();
  if (live.empty()) return std::max(workers.largest_end(), membership_->shards().MinClock());
  Clock highest = workers.largest_end();
  for (const WorkerNode* worker : live) highest = std::max(highest, worker->clock);
  return highest + kProposalSlack + 1;
}

void Agreement::WarnOfUndrained() const {
  for (const WorkerNode* worker : Undrained())
    notes_->Warn(fmt::format("worker {} has not finished its batch for {:g} s: the checkpoint {}", worker->rank.value,
                             static_cast<double>(lease_us_) * 1e-6,
                             worker->keeps_state ? "waits for it, because it needs the state that its program saves "
                                                   "after a tick"
                                                 : "does not wait for it, so its current batch may be trained again "
                                                   "after a resume"));
}

void Agreement::AwaitConfirmation() {
  stage_ = Stage::kConfirming;
  version_ = membership_->view().version;
}

bool Agreement::CloseIfConfirmed() {
  if (stage_ != Stage::kConfirming || !membership_->shards().Confirmed(version_)) return false;
  membership_->current_view()->CloseProposal();
  stage_ = Stage::kClosed;
  return true;
}

}  // namespace tarn::scheduler
