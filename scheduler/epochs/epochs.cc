#include "scheduler/epochs/epochs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tarn::scheduler {

Epochs::Epochs(Options options, const Context& context)
    : options_(std::move(options)),
      context_(context),
      schedule_(options_.train, std::move(options_.finished)),
      train_time_(options_.train_time),
      best_(options_.best_wanted, options_.best_lost) {}

Epochs::Step Epochs::Advance(const Facts& facts) {
  const Leases& leases = *context_.leases;
  switch (phase_) {
    case Phase::kWaiting: return {};
    case Phase::kTrain: return EndTraining(facts);
    case Phase::kValidate:
      if (!leases.EvaluationDone()) return {};
      schedule_.SetValidation(ScoresOf(leases.evaluation().quality()));
      return AfterValidation(facts);
    case Phase::kTest:
      if (!leases.EvaluationDone()) return {};
      schedule_.SetTest(ScoresOf(leases.evaluation().quality()));
      return AfterScoring(facts);
    case Phase::kBestCheckpoint: return AfterBest(facts);
    case Phase::kFinalCheckpoint:
      if (facts.cut_under_way) return {};
      phase_ = Phase::kLeaving;
      return {.changed = true};
    case Phase::kLeaving:
      if (!context_.membership->workers().Live().empty()) return {};
      return {.changed = true, .end = Shutdown{ErrorCode::kOk, "done"}};
  }
  return {};
}

bool Epochs::AllAtCeiling() const {
  const auto live = context_.membership->workers().Live();
  const Clock ceiling = context_.leases->ceiling();
  return !live.empty() && !context_.membership->AnyFencing() &&
         std::ranges::all_of(live, [&](const WorkerNode* worker) { return worker->acked_clock >= ceiling; });
}

Epochs::Step Epochs::EndTraining(const Facts& facts) {
  Leases& leases = *context_.leases;
  if (!leases.TrainDone()) return {};
  train_time_.End(facts.now);
  if (facts.cut_under_way) return {};
  if (schedule_.Finished(leases.epoch()))  // resumed from a checkpoint at the end of an epoch
    return best_.TakeWanted() ? WantBest() : NextEpoch(facts);
  const bool scores = leases.data().rows(LeasePurpose::kValidate) != 0 || leases.data().rows(LeasePurpose::kTest) != 0;
  if ((KeepsCheckpoints() || scores) && !AllAtCeiling()) return {};
  const Quality quality = leases.train().quality();
  WarnOfOneClass(quality);
  schedule_.BeginScoring(leases.epoch(), ScoresOf(quality));
  if (leases.data().rows(LeasePurpose::kValidate) == 0) return AfterValidation(facts);
  leases.BeginEvaluation(LeasePurpose::kValidate);
  phase_ = Phase::kValidate;
  return {.changed = true};
}

void Epochs::WarnOfOneClass(const Quality& train) const {
  if (train.has_logits() && (train.positives == 0 || train.positives == train.rows))
    context_.notes->Warn(fmt::format("epoch {}: all {} labels of the training set are {}: expected both labels",
                                     EpochNumber(context_.leases->epoch()), train.rows, train.positives == 0 ? 0 : 1));
}

Epochs::Step Epochs::AfterValidation(const Facts& facts) {
  if (!schedule_.IsBest() || context_.leases->data().rows(LeasePurpose::kTest) == 0) return AfterScoring(facts);
  context_.leases->BeginEvaluation(LeasePurpose::kTest);
  phase_ = Phase::kTest;
  return {.changed = true};
}

Epochs::Step Epochs::AfterScoring(const Facts& facts) {
  schedule_.EndScoring();
  const EpochResult& result = schedule_.finished().back();
  NoteScores(result);
  // LeaseDesk ends the run if a lease has a loss that is not finite, but sums of finite losses may overflow.
  const auto diverged = [](const Scores& scores) { return scores.rows != 0 && !std::isfinite(scores.log_loss); };
  if (diverged(result.train) || (result.valid && diverged(*result.valid)) || (result.test && diverged(*result.test)))
    return {.changed = true,
            .end = Shutdown{ErrorCode::kDiverged,
                            fmt::format("training has diverged by clock {}: a log-loss of epoch {} is not a finite "
                                        "number",
                                        context_.membership->shards().MinClock().value, EpochNumber(result.epoch))}};
  return result.best && KeepsCheckpoints() ? WantBest() : NextEpoch(facts);
}

void Epochs::NoteScores(const EpochResult& result) const {
  std::string note = fmt::format("epoch {}: train log-loss {:.5f}", EpochNumber(result.epoch), result.train.log_loss);
  const auto add = [&](const char* set, const Scores& scores) {
    note += fmt::format(", {} log-loss {:.5f}", set, scores.log_loss);
    if (!options_.has_auc)
      note += fmt::format(", accuracy {:.5f}", scores.accuracy);
    else if (scores.auc)
      note += fmt::format(", AUC {:.5f}", *scores.auc);
  };
  if (result.valid) add("validation", *result.valid);
  if (result.test) add("test", *result.test);
  context_.notes->Info(note + (result.best ? ", the best so far" : ""));
}

Epochs::Step Epochs::WantBest() {
  best_.Begin();
  phase_ = Phase::kBestCheckpoint;
  return {.changed = true, .cut = CutReason::kBest};
}

Epochs::Step Epochs::AfterBest(const Facts& facts) {
  if (facts.cut_under_way || best_.Pauses(facts.now)) return {};
  if (best_.TakeRetry()) return WantBest();
  best_.End();
  return NextEpoch(facts);
}

// After the last attempt, training continues without the checkpoint of the best epoch.
void Epochs::OnBestFailed(TimeUs now, const std::string& kept) {
  if (!best_.OnFailed(now)) return;
  context_.notes->Warn(
      fmt::format("epoch {} was the best so far, but its checkpoint could not be written in {} attempts: {}",
                  EpochNumber(schedule_.finished().back().epoch), BestCheckpoint::kTriesMax,
                  kept.empty() ? std::string("no checkpoint of a best epoch exists")
                               : "the best existing checkpoint is an earlier one, " + kept));
}

Epochs::Step Epochs::NextEpoch(const Facts& facts) {
  if (schedule_.HasNextEpoch()) {
    context_.leases->BeginEpoch(context_.leases->epoch() + 1);
    phase_ = Phase::kTrain;
    return {.changed = true};
  }
  phase_ = Phase::kFinalCheckpoint;
  Step step{.changed = true};
  if (!facts.state_is_cut)
    step.cut = KeepsCheckpoints() && options_.storage.checkpoint_final ? CutReason::kFinal : CutReason::kHash;
  else if (!facts.has_hash)
    step.cut = CutReason::kHash;
  return step;
}

LeaseSupply Epochs::supply() const {
  switch (phase_) {
    case Phase::kTrain: return LeaseSupply::kTraining;
    case Phase::kValidate:
    case Phase::kTest: return LeaseSupply::kEvaluation;
    case Phase::kLeaving: return LeaseSupply::kFinished;
    case Phase::kWaiting:
    case Phase::kBestCheckpoint:
    case Phase::kFinalCheckpoint: break;
  }
  return LeaseSupply::kJumps;
}

}  // namespace tarn::scheduler
