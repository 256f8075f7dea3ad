// What comes next, looked at after every message and timer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "scheduler/impl.h"

namespace tarn::scheduler {

void Scheduler::Impl::Advance(TimeUs now, Outbox* out) {
  bool changed = true;
  while (changed && !stop_) {
    changed = AdvanceFormation(now);
    changed |= AdvanceVerdicts();
    changed |= AdvanceAgreement(now);
    changed |= AdvanceCut(now, out);
    if (!stop_) changed |= AdvancePhase(now, out);
  }
  if (stop_) return;
  Answer(out);
  membership_.SendViews(now, Mail(out));
}

bool Scheduler::Impl::AdvanceFormation(TimeUs now) {
  if (!membership_.Form(now)) return false;
  for (const WorkerNode* worker : membership_.workers().Live()) {
    leases_.Join(worker->incarnation, worker->rank, worker->join);
    barriers_.Join(worker->incarnation);
  }
  checkpoints_.StartCounting(now);
  Say(fmt::format("the fleet is complete: {} shards, {} workers", membership_.shards().size(),
                  options_.job.fleet.workers));
  phase_ = Phase::kTrain;
  return true;
}

bool Scheduler::Impl::AdvanceVerdicts() {
  const auto verdicts = membership_.TakeVerdicts();
  for (const Verdict& verdict : verdicts) {
    leases_.End(verdict.worker, verdict.position, verdict.end, verdict.taken_back);
    requests_.End(verdict.worker);
    tables_.End(verdict.worker);
    barriers_.End(verdict.worker);
    totals_.End(verdict.worker);
    batches_repeated_ += verdict.repeated;
    deserted_ = !membership_.workers().Left(verdict.worker);
    if (!membership_.workers().Left(verdict.worker))
      Say(fmt::format("worker {} (incarnation {}) ended at clock {}, row {} of lease {}", verdict.rank.value,
                      verdict.worker.value, verdict.end.value, verdict.position.rows, verdict.position.lease.value));
    VoidCut(verdict);
  }
  return !verdicts.empty();
}

bool Scheduler::Impl::AdvanceAgreement(TimeUs now) {
  switch (agreement_) {
    case Agreement::kNone: {
      const bool join = membership_.JoinersReady() && phase_ != Phase::kLeaving;
      if (!join && (!wanted_ || BeginWanted(now))) return false;
      agreement_ = Agreement::kReporting;
      agreement_is_cut_ = !join;
      agreement_drains_ = !join && DrainsFor(*wanted_);
      drain_deadline_ = now + lease_us_;
      membership_.OpenProposal(agreement_drains_);
      return true;
    }
    case Agreement::kReporting: {
      // A worker that is being fenced is waited for: its verdict says which of its pushes count.
      const bool drains = agreement_drains_, late = drains && now >= drain_deadline_ && !membership_.AnyFencing();
      if (!(drains ? membership_.AllDrained() : membership_.AllReported()) && !late) return false;
      if (late) WarnOfUndrained();
      const Clock free = membership_.FreeClock();
      if (!agreement_is_cut_) {
        for (const Incarnation id : membership_.AdmitJoiners(free)) {
          const WorkerNode& worker = membership_.workers().at(id);
          leases_.Join(worker.incarnation, worker.rank, free);
          barriers_.Join(worker.incarnation);
          Say(fmt::format("worker {} (incarnation {}) begins at clock {}", worker.rank.value, worker.incarnation.value,
                          free.value));
        }
      } else if (wanted_) {
        PlaceOrder(free, now);
      }
      agreement_ = Agreement::kConfirming;
      agreement_version_ = membership_.view().version;
      return true;
    }
    case Agreement::kConfirming:
      if (agreement_drains_) return PlaceWanted(now);
      if (!membership_.shards().Confirmed(agreement_version_)) return false;
      membership_.CloseProposal();
      agreement_ = Agreement::kNone;
      return true;
  }
  return false;
}

bool Scheduler::Impl::EverybodyAtCeiling() const {
  const auto live = membership_.workers().Live();
  const Clock ceiling = leases_.ceiling();
  return !live.empty() && !membership_.AnyFencing() &&
         std::all_of(live.begin(), live.end(),
                     [&](const WorkerNode* worker) { return worker->acked_clock >= ceiling; });
}

bool Scheduler::Impl::AdvancePhase(TimeUs now, Outbox* out) {
  if (membership_.restarting()) return false;  // what is trained is not known yet
  if (stop_wanted_ && phase_ != Phase::kFinalCheckpoint && phase_ != Phase::kLeaving) {
    if (CutUnderWay()) return false;
    if (stop_cut_begun_ || state_is_cut_ || phase_ == Phase::kWaiting) {
      kept_by_checkpoint_ = phase_ != Phase::kWaiting;
      StopAsWanted(now, out);
    } else {
      stop_cut_begun_ = true;
      WantCut(CutReason::kStop);
    }
    return true;
  }
  // A shard that had not heard of the order would go beyond its clock with the first pushes of another epoch.
  if (!membership_.shards().Confirmed(ordered_version_)) return false;
  switch (phase_) {
    case Phase::kWaiting: return false;
    case Phase::kTrain: return EndTraining(now, out);
    case Phase::kValidate:
      if (!leases_.EvaluationDone()) return false;
      schedule_.SetValidation(ScoresOf(leases_.evaluation().quality()));
      AfterValidation(now, out);
      return true;
    case Phase::kTest:
      if (!leases_.EvaluationDone()) return false;
      schedule_.SetTest(ScoresOf(leases_.evaluation().quality()));
      AfterScoring(now, out);
      return true;
    case Phase::kBestCheckpoint:
      if (CutUnderWay() || now < best_again_) return false;
      if (std::exchange(best_again_, 0) != 0) {
        WantCut(CutReason::kBest);
        return true;
      }
      best_failures_ = 0;
      NextEpoch();
      return true;
    case Phase::kFinalCheckpoint:
      if (CutUnderWay()) return false;
      phase_ = Phase::kLeaving;
      return true;
    case Phase::kLeaving:
      if (!membership_.workers().Live().empty()) return false;
      Stop(ErrorCode::kOk, "done", "done", now, out);
      return true;
  }
  return false;
}

bool Scheduler::Impl::EndTraining(TimeUs now, Outbox* out) {
  if (!leases_.TrainDone()) return false;
  if (training_) {
    training_ = false;
    train_end_ = now;
    train_seconds_ += static_cast<double>(now - train_since_) * 1e-6;
  }
  if (CutUnderWay()) return false;
  if (schedule_.Finished(leases_.epoch())) {   // resumed from a checkpoint at the end of an epoch
    if (std::exchange(best_wanted_, false)) {  // it ended before that was whole
      phase_ = Phase::kBestCheckpoint;
      WantCut(CutReason::kBest);
    } else {
      NextEpoch();
    }
    return true;
  }
  const bool cuts = options_.job.storage.durability != Durability::kNone;
  const bool scores = leases_.rows()[1] != 0 || leases_.rows()[2] != 0;
  if ((cuts || scores) && !EverybodyAtCeiling()) return false;
  const Quality quality = leases_.train().quality();
  WarnOfOneClass(quality);
  schedule_.BeginScoring(leases_.epoch(), ScoresOf(quality));
  if (leases_.rows()[1] == 0) {
    AfterValidation(now, out);
    return true;
  }
  leases_.BeginEvaluation(LeasePurpose::kValidate);
  phase_ = Phase::kValidate;
  return true;
}

void Scheduler::Impl::WarnOfOneClass(const Quality& train) {
  const bool binary = !train.buckets.empty();
  if (binary && (train.positives == 0 || train.positives == train.rows))
    Warn(fmt::format("epoch {}: all {} labels of the training set are {}: there is nothing to tell apart",
                     EpochNumber(leases_.epoch()), train.rows, train.positives == 0 ? 0 : 1));
}

void Scheduler::Impl::AfterValidation(TimeUs now, Outbox* out) {
  if (!schedule_.IsBest() || leases_.rows()[2] == 0) {
    AfterScoring(now, out);
    return;
  }
  leases_.BeginEvaluation(LeasePurpose::kTest);
  phase_ = Phase::kTest;
}

void Scheduler::Impl::AfterScoring(TimeUs now, Outbox* out) {
  schedule_.EndScoring();
  const EpochResult& result = schedule_.finished().back();
  std::string note = fmt::format("epoch {}: train log-loss {:.5f}", EpochNumber(result.epoch), result.train.log_loss);
  if (result.valid)
    note += fmt::format(", validation log-loss {:.5f}, AUC {:.5f}", result.valid->log_loss, result.valid->auc);
  if (result.test) note += fmt::format(", test log-loss {:.5f}, AUC {:.5f}", result.test->log_loss, result.test->auc);
  Say(note + (result.best ? ", the best so far" : ""));
  // Workers report no such lease (OnLeaseRequest), but sums of finite losses may overflow.
  const auto diverged = [](const Scores& scores) { return scores.rows != 0 && !std::isfinite(scores.log_loss); };
  if (diverged(result.train) || (result.valid && diverged(*result.valid)) || (result.test && diverged(*result.test))) {
    Fail(ErrorCode::kDiverged,
         fmt::format("training has diverged by clock {}: a log-loss of epoch {} is not a finite number",
                     membership_.shards().MinClock().value, EpochNumber(result.epoch)),
         now, out);
    return;
  }
  if (!result.best || options_.job.storage.durability == Durability::kNone) {
    NextEpoch();
    return;
  }
  phase_ = Phase::kBestCheckpoint;
  WantCut(CutReason::kBest);
}

void Scheduler::Impl::NextEpoch() {
  if (schedule_.Another()) {
    leases_.BeginEpoch(leases_.epoch() + 1);
    phase_ = Phase::kTrain;
    return;
  }
  const StorageSection& storage = options_.job.storage;
  const bool checkpoint = storage.durability != Durability::kNone && storage.checkpoint_final;
  phase_ = Phase::kFinalCheckpoint;
  if (!state_is_cut_)
    WantCut(checkpoint ? CutReason::kFinal : CutReason::kHash);
  else if (!checkpoints_.has_hash())
    WantCut(CutReason::kHash);
}

std::optional<LeaseReply> Scheduler::Impl::AnswerLease(Incarnation worker, std::uint32_t want) {
  if (phase_ == Phase::kLeaving) {
    LeaseReply reply;
    reply.finished = true;
    return reply;
  }
  if (want == 0) return LeaseReply{};
  if (phase_ == Phase::kTrain && stop_wanted_ && !cuts_at_clock_) return std::nullopt;  // rule K11: no new data
  switch (phase_) {
    case Phase::kTrain: return leases_.AnswerTraining(worker, want);
    case Phase::kValidate:
    case Phase::kTest: return leases_.AnswerEvaluation(worker, want);
    default: return leases_.AnswerJump(worker);
  }
}

void Scheduler::Impl::Answer(Outbox* out) {
  const Mailer mail = Mail(out);
  auto peer_of = [&](Incarnation worker) { return membership_.workers().at(worker).peer; };
  auto live = [&](Incarnation worker) { return membership_.workers().IsLive(worker); };
  // A grant may raise the ceiling for those that were looked at before.
  for (bool again = true; again;) {
    again = false;
    for (const auto& [worker, waiting] : requests_.waiting()) {
      if (!live(worker)) continue;
      auto reply = AnswerLease(worker, waiting.want);
      // Who still has leases in work is not kept waiting: its next request says what it has done meanwhile.
      if (!reply && leases_.HasOpen(worker)) reply.emplace();
      if (!reply) continue;
      if (phase_ == Phase::kTrain && !reply->grants.empty()) {
        if (!granted_) first_grant_ = now_;
        granted_ = true;
        if (!training_) train_since_ = now_;
        training_ = true;
        state_is_cut_ = false;
        if (Cut* cut = checkpoints_.pending()) cut->at_boundary = false;
      }
      mail.Send(peer_of(worker), requests_.Answer(worker, std::move(*reply)));
      again = true;
    }
  }
  for (auto& [worker, answer] : tables_.Answers(membership_.shards().LeastConfirmed()))
    if (live(worker)) mail.Send(peer_of(worker), std::move(answer));
  for (const Barriers::Answer& answer : barriers_.Answers())
    if (live(answer.worker)) mail.Send(peer_of(answer.worker), Barrier{.number = answer.number});
}

}  // namespace tarn::scheduler
