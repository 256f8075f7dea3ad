// Two times, summed over the starts of a run (an earlier start counts up to the state with which the next one began).
// TotalSeconds: in each start, from the first grant of a training lease to the end of the last training phase (during
// one: to now), with the evaluations in between. TrainSeconds: the part in training phases.
#pragma once

#include "core/types.h"

namespace tarn::scheduler {

class TrainTime {
 public:
  TrainTime() = default;
  // The times of earlier starts, from a manifest.
  TrainTime(double seconds, double train_seconds) : earlier_seconds_(seconds), train_seconds_(train_seconds) {}

  // A training lease was granted.
  void OnGrant(TimeUs now) {
    if (!granted_) first_grant_ = now;
    if (!training_) train_since_ = now;
    granted_ = training_ = true;
  }
  // All training leases of an epoch are done, or the run ends. Idempotent.
  void End(TimeUs now) {
    if (!training_) return;
    train_seconds_ += Seconds(now - train_since_);
    train_end_ = now;
    training_ = false;
  }

  double TotalSeconds(TimeUs now) const {
    return granted_ ? earlier_seconds_ + Seconds((training_ ? now : train_end_) - first_grant_) : earlier_seconds_;
  }
  double TrainSeconds(TimeUs now) const { return train_seconds_ + (training_ ? Seconds(now - train_since_) : 0); }

 private:
  static double Seconds(TimeUs us) { return static_cast<double>(us) * 1e-6; }

  double earlier_seconds_ = 0, train_seconds_ = 0;
  bool granted_ = false, training_ = false;
  TimeUs first_grant_ = 0, train_since_ = 0, train_end_ = 0;
};

}  // namespace tarn::scheduler
