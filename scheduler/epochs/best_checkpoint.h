// The checkpoint of the best epoch: retries after failures, until training continues without it. Plain bookkeeping.
#pragma once

#include <utility>

#include "core/types.h"

namespace tarn::scheduler {

class BestCheckpoint {
 public:
  static constexpr int kTriesMax = 3;
  static constexpr TimeUs kPauseUs = 10'000'000;  // between attempts, in case the disk has room again

  // `wanted`: an earlier start of the run ended before the checkpoint of its last epoch, the best so far, was complete.
  // `lost`: the checkpoint of the best epoch could not be written.
  BestCheckpoint(bool wanted, bool lost) : wanted_(wanted), lost_(lost) {}

  bool wanted() const { return wanted_; }
  // Returns and clears `wanted`: the caller cuts the checkpoint now.
  bool TakeWanted() { return std::exchange(wanted_, false); }

  // The caller cuts the checkpoint now.
  void Begin() { pending_ = true; }
  void OnWhole() {
    lost_ = pending_ = false;
    failures_ = 0;
  }
  // Records a failed attempt. True: it was the last one.
  bool OnFailed(TimeUs now) {
    if (++failures_ < kTriesMax) {
      retry_at_ = now + kPauseUs;
      return false;
    }
    lost_ = true;
    pending_ = false;
    return true;
  }
  // Whether the next attempt must wait.
  bool Pauses(TimeUs now) const { return now < retry_at_; }
  // Returns and clears whether another attempt is due: the caller cuts the checkpoint now.
  bool TakeRetry() { return std::exchange(retry_at_, 0) != 0; }
  // The checkpoint is complete or lost: resets the attempts.
  void End() { failures_ = 0; }

  // Whether the best epoch has no complete checkpoint.
  bool missing() const { return lost_ || wanted_ || pending_; }

 private:
  bool wanted_, lost_;
  bool pending_ = false;  // an attempt has begun, and none has succeeded or was the last
  int failures_ = 0;
  TimeUs retry_at_ = 0;  // time of the next attempt; 0: no attempt has failed since the last cut
};

}  // namespace tarn::scheduler
