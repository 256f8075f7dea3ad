// Determines the next actions, after every message and timer.
#include <fmt/format.h>

#include <utility>

#include "scheduler/impl.h"

namespace tarn::scheduler {

void Scheduler::Impl::Advance(TimeUs now, Outbox* out) {
  bool changed = true;
  while (changed && !stop_.begun()) {
    changed = AdvanceFormation(now);
    changed |= AdvanceVerdicts();
    changed |= AdvanceAgreement(now);
    changed |= AdvanceCut(now, out);
    if (!stop_.begun()) changed |= AdvanceEpochs(now, out);
  }
  if (stop_.begun()) return;
  Answer(now, out);
  membership_.SendViews(now, Mail(out));
}

void Scheduler::Impl::Admit(Incarnation id) {
  const WorkerNode& worker = membership_.workers().at(id);
  desk_.leases().Join(id, worker.rank, worker.join);
  barriers_.Join(id);
}

bool Scheduler::Impl::AdvanceFormation(TimeUs now) {
  if (!membership_.Form(now)) return false;
  for (const WorkerNode* worker : membership_.workers().Live()) Admit(worker->incarnation);
  cuts_.StartCounting(now);
  notes_.Info(fmt::format("the fleet is complete: {} shards, {} workers", membership_.shards().size(),
                          setup_.job.fleet.workers));
  epochs_.Begin();
  return true;
}

bool Scheduler::Impl::AdvanceVerdicts() {
  const auto verdicts = membership_.TakeVerdicts();
  for (const Verdict& verdict : verdicts) {
    desk_.End(verdict.worker, verdict.position, verdict.end, verdict.taken_back);
    tables_.End(verdict.worker);
    barriers_.End(verdict.worker);
    record_.OnVerdict(verdict);
    const bool left = membership_.workers().Left(verdict.worker);
    watch_.OnWorkerEnded(left);
    if (!left)
      notes_.Info(fmt::format("worker {} (incarnation {}) ended at clock {}, row {} of lease {}", verdict.rank.value,
                              verdict.worker.value, verdict.end.value, verdict.position.rows,
                              verdict.position.lease.value));
    cuts_.OnVerdict(verdict);
  }
  return !verdicts.empty();
}

bool Scheduler::Impl::AdvanceAgreement(TimeUs now) {
  using Purpose = Agreement::Purpose;
  if (!agreement_.open()) {
    const bool join = membership_.JoinersReady(now) && epochs_.phase() != Phase::kLeaving;
    if (!join && !cuts_.NeedsAgreement(epochs_.Moment(now))) return false;
    agreement_.Open(join ? Purpose::kJoin : cuts_.WantedDrains() ? Purpose::kDrainedCut : Purpose::kCut, now);
    return true;
  }
  if (agreement_.reporting()) {
    const auto free = agreement_.FreeClock(now);
    if (!free) return false;
    if (agreement_.purpose() != Purpose::kJoin) {
      cuts_.PlaceOrder(*free, epochs_.Moment(now));
    } else {
      for (const Incarnation id : membership_.AdmitJoiners(*free)) {
        Admit(id);
        notes_.Info(fmt::format("worker {} (incarnation {}) begins at clock {}",
                                membership_.workers().at(id).rank.value, id.value, free->value));
      }
    }
    agreement_.AwaitConfirmation();
    return true;
  }
  // A drained fleet remains drained, because its checkpoint may have to be cut again.
  if (agreement_.purpose() == Purpose::kDrainedCut)
    return cuts_.PlaceOrder(desk_.leases().ceiling(), epochs_.Moment(now));
  return agreement_.CloseIfConfirmed();
}

bool Scheduler::Impl::AdvanceCut(TimeUs now, Outbox* out) {
  const CheckpointCoordinator::Step step = cuts_.Advance(epochs_.Moment(now), Mail(out));
  if (step.end) OnCutEnd(*step.end, now, out);
  return step.changed;
}

// A failed periodic or requested checkpoint does not end the run, because another follows. Neither does a failed best
// one, because training continues with the same parameters. A failed checkpoint or hash at the end of the run does.
void Scheduler::Impl::OnCutEnd(const CutEnd& end, TimeUs now, Outbox* out) {
  if (end.failed && end.reason > CutReason::kBest) return Fail(end.failed->code, end.failed->message, now, out);
  if (end.reason != CutReason::kBest) return;
  if (end.failed)
    epochs_.OnBestFailed(now, cuts_.checkpoints().best());
  else
    epochs_.OnBestWhole();
}

bool Scheduler::Impl::AdvanceEpochs(TimeUs now, Outbox* out) {
  if (membership_.restarting()) return false;  // the trained rows are not known yet
  const Phase phase = epochs_.phase();
  const bool by_user = stop_request_.requested() && stop_request_.reason().code == ErrorCode::kOk;
  if (by_user && phase == Phase::kLeaving && !cuts_.UnderWay()) {
    Stop(stop_request_.reason(), "done", now, out);  // the last checkpoint is complete; programs may still work
    return true;
  }
  if (stop_request_.requested() && phase != Phase::kFinalCheckpoint && phase != Phase::kLeaving)
    return AdvanceStop(now, out);
  // A shard that has not received the order would pass the order's clock with the first pushes of another epoch.
  if (!cuts_.OrderConfirmed()) return false;
  const Epochs::Step step = epochs_.Advance({.now = now,
                                             .cut_under_way = cuts_.UnderWay(),
                                             .state_is_cut = cuts_.state_is_cut(),
                                             .has_hash = cuts_.checkpoints().has_hash()});
  if (step.cut) cuts_.Want(*step.cut);
  if (step.end && step.end->code == ErrorCode::kOk)
    Stop(*step.end, "done", now, out);
  else if (step.end)
    Fail(step.end->code, step.end->reason, now, out);
  return step.changed;
}

bool Scheduler::Impl::AdvanceStop(TimeUs now, Outbox* out) {
  if (cuts_.UnderWay()) return false;
  const bool waiting = epochs_.phase() == Phase::kWaiting;
  if (!waiting && !cuts_.state_is_cut() && stop_request_.BeginCut()) {
    cuts_.Want(CutReason::kStop);
    return true;
  }
  if (!waiting) stop_request_.MarkStateSaved();
  Stop(stop_request_.reason(), stop_request_.phase(), now, out);
  return true;
}

void Scheduler::Impl::Answer(TimeUs now, Outbox* out) {
  const Mailer mail = Mail(out);
  const Workers& workers = membership_.workers();
  const auto is_live = [&workers](Incarnation worker) { return workers.IsLive(worker); };
  LeaseSupply supply = epochs_.supply();
  if (supply == LeaseSupply::kTraining && stop_request_.requested() && !cuts_.IsAtClock())
    supply = LeaseSupply::kNone;  // rule K11
  for (LeaseDesk::Answer& answer : desk_.Answers(supply, is_live)) {
    if (supply == LeaseSupply::kTraining && !answer.reply.grants.empty()) {
      epochs_.OnGrant(now);
      cuts_.OnGrant();
    }
    mail.Send(workers.at(answer.worker).peer, std::move(answer.reply));
  }
  for (auto& [worker, answer] : tables_.Answers(membership_.shards().LeastConfirmed()))
    if (is_live(worker)) mail.Send(workers.at(worker).peer, std::move(answer));
  for (const Barriers::Answer& answer : barriers_.Answers())
    if (is_live(answer.worker)) mail.Send(workers.at(answer.worker).peer, Barrier{.number = answer.number});
}

}  // namespace tarn::scheduler
