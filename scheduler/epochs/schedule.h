// The epochs of a run and their scores: the best so far, and whether another follows (rule D5). Plain bookkeeping.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/job/job.h"
#include "scheduler/progress/progress.h"

namespace tarn::scheduler {

class Schedule {
 public:
  Schedule(const TrainSection& train, std::vector<EpochResult> finished)
      : epochs_max_(train.epochs), patience_(train.patience), finished_(std::move(finished)) {}

  // The training of an epoch has ended; its evaluation begins.
  void BeginScoring(std::uint32_t epoch, const Scores& train);
  void SetValidation(const Scores& scores) { scoring_.valid = scores; }
  void SetTest(const Scores& scores) { scoring_.test = scores; }
  // Whether the epoch being scored is the best so far: it has the least validation log-loss, or there is no validation
  // set.
  bool IsBest() const;
  // The evaluation is complete: the epoch is finished.
  void EndScoring();

  bool Finished(std::uint32_t epoch) const { return !finished_.empty() && finished_.back().epoch >= epoch; }
  // Whether another epoch follows the last one finished.
  bool HasNextEpoch() const;
  const std::vector<EpochResult>& finished() const { return finished_; }

 private:
  std::optional<std::uint32_t> Best() const;  // index into finished_

  std::uint32_t epochs_max_, patience_;
  std::vector<EpochResult> finished_;
  EpochResult scoring_;
};

}  // namespace tarn::scheduler
