#include "scheduler/leases/lease_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/codec/manifest.h"

namespace tarn::scheduler {

LeaseDesk::LeaseDesk(const Job& job, Clock start_clock, Notes* notes)
    : leases_(job, start_clock), notes_(notes), workers_(job.fleet.workers) {}

LeaseDesk::Heard LeaseDesk::OnRequest(WorkerRank rank, Incarnation worker, Clock clock, const LeaseRequest& request) {
  const bool sizes_were_known = leases_.data().known();
  if (auto sizes = leases_.SetSizes(request.rows); !sizes) {
    Heard heard;
    // If the first worker's sizes are invalid, the run cannot continue. Invalid sizes of another reject only that
    // worker.
    (sizes_were_known ? heard.refuses : heard.ends_run) = sizes.error();
    return heard;
  }
  const std::uint64_t split_rows = leases_.data().split_rows();
  if (leases_.data().known() && std::exchange(idle_for_, split_rows) != split_rows) WarnOfIdleWorkers();
  leases_.NoteSkipped(worker, request.skipped);
  for (const LeaseDone& done : request.done) {
    if (!std::isfinite(done.quality.loss_sum))
      return {.ends_run = Error{ErrorCode::kDiverged,
                                fmt::format("worker {}: training has diverged by clock {}: the reported loss of "
                                            "lease {} is not a finite number",
                                            rank.value, clock.value, done.lease.value)}};
    leases_.Done(worker, done);
  }
  return {.reply = requests_.Ask(worker, request.number, request.want)};
}

void LeaseDesk::WarnOfIdleWorkers() {
  const std::uint64_t splits = leases_.train().size();
  const std::uint64_t idle = std::max<std::uint64_t>(workers_ - std::min<std::uint64_t>(splits, workers_),
                                                     leases_.train().RanksWithoutSplits());
  if (idle == 0) return;
  notes_->Warn(
      fmt::format("the training set has {} rows in {} split{} of {} rows, for {} workers: {} workers get no data in "
                  "epoch {}; expected fewer workers, or a smaller train.batch_rows or data.split_rows",
                  leases_.data().rows(LeasePurpose::kTrain), splits, splits == 1 ? "" : "s",
                  leases_.data().split_rows(), workers_, idle, EpochNumber(leases_.epoch())));
}

std::optional<LeaseReply> LeaseDesk::TryAnswer(Incarnation worker, std::uint32_t want, LeaseSupply supply) {
  if (supply == LeaseSupply::kFinished) {
    LeaseReply reply;
    reply.finished = true;
    return reply;
  }
  if (want == 0) return LeaseReply{};
  switch (supply) {
    case LeaseSupply::kTraining: return leases_.AnswerTraining(worker, want);
    case LeaseSupply::kEvaluation: return leases_.AnswerEvaluation(worker, want);
    case LeaseSupply::kJumps: return leases_.AnswerJump(worker);
    case LeaseSupply::kNone:
    case LeaseSupply::kFinished: break;
  }
  return std::nullopt;
}

std::vector<LeaseDesk::Answer> LeaseDesk::Answers(LeaseSupply supply, const std::function<bool(Incarnation)>& is_live) {
  std::vector<Answer> answers;
  // A grant may raise the ceiling for workers handled earlier in the loop.
  for (bool again = true; again;) {
    again = false;
    for (const auto& [worker, waiting] : requests_.waiting()) {
      if (!is_live(worker)) continue;
      auto reply = TryAnswer(worker, waiting.want, supply);
      if (!reply && leases_.AwaitsTurn(worker)) continue;
      // A worker with open leases gets an empty reply instead of waiting; its next request reports its progress.
      if (!reply && leases_.HasOpen(worker)) reply.emplace();
      if (!reply) continue;
      answers.push_back({worker, requests_.Answer(worker, std::move(*reply))});
      again = true;
    }
  }
  return answers;
}

void LeaseDesk::End(Incarnation worker, const DataPosition& position, Clock end, bool take_back) {
  leases_.End(worker, position, end, take_back);
  requests_.End(worker);
}

}  // namespace tarn::scheduler
