#include "scheduler/membership/agreement.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::scheduler {

Agreement::Agreement(Membership* membership, Notes* notes, TimeUs lease_us)
    : membership_(membership), notes_(notes), lease_us_(lease_us) {}

void Agreement::Open(Purpose purpose, TimeUs now) {
  stage_ = Stage::kReporting;
  purpose_ = purpose;
  drain_deadline_ = now + lease_us_;
  membership_->current_view()->OpenProposal(purpose == Purpose::kDrainedCut);
}

std::optional<Clock> Agreement::FreeClock(TimeUs now) {
  if (purpose_ != Purpose::kDrainedCut) {
    if (!AllReported()) return std::nullopt;
    return ClockThatNobodyPassed();
  }
  // Always waits for the verdict of a worker that is being fenced, because it decides which of its pushes count.
  const bool late = now >= drain_deadline_ && !membership_->AnyFencing();
  if (!AllDrained() && !late) return std::nullopt;
  if (late) WarnOfUndrained();
  return ClockThatNobodyPassed();
}

bool Agreement::AllReported() const {
  const std::uint64_t id = membership_->view().proposal.id;
  const auto reported = [id](const WorkerNode* worker) { return worker->proposal == id; };
  return !membership_->AnyFencing() && std::ranges::all_of(membership_->workers().Live(), reported);
}

bool Agreement::AllDrained() const {
  const std::uint64_t id = membership_->view().proposal.id;
  const auto drained = [id](const WorkerNode* worker) { return worker->drained == id; };
  return !membership_->AnyFencing() && std::ranges::all_of(membership_->workers().Live(), drained);
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
  const View& view = membership_->view();
  for (const WorkerNode* worker : membership_->workers().Live())
    if (worker->drained != view.proposal.id)
      notes_->Warn(
          fmt::format("worker {} has not finished its batch for {:g} s: the checkpoint does not wait for it, "
                      "so its current batch may be trained again after a resume",
                      worker->rank.value, static_cast<double>(lease_us_) * 1e-6));
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
