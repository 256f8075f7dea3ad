// The checkpoint of the best epoch: how often it is tried after failures, and that training continues without it in the
// end. Plain bookkeeping.
#pragma once

#include <utility>

#include "core/types.h"

namespace tarn::scheduler {

class BestCheckpoint {
 public:
  static constexpr int kTriesMax = 3;
  static constexpr TimeUs kPauseUs = 10'000'000;  // between tries, for a disk that may have room again

  // wanted: an earlier start of the run ended before the checkpoint of the last epoch, the best so far, was whole.
  // lost: the best epoch is one whose checkpoint could not be written.
  BestCheckpoint(bool wanted, bool lost) : wanted_(wanted), lost_(lost) {}

  bool wanted() const { return wanted_; }
  // Whether it was; it is cut now.
  bool TakeWanted() { return std::exchange(wanted_, false); }

  void OnWhole() { lost_ = false; }
  // It could not be written. True: for the last time.
  bool OnFailed(TimeUs now) {
    if (++failures_ < kTriesMax) {
      again_ = now + kPauseUs;
      return false;
    }
    lost_ = true;
    return true;
  }
  // The next try waits.
  bool Pauses(TimeUs now) const { return now < again_; }
  // Whether there is a next try; it is cut now.
  bool TakeAgain() { return std::exchange(again_, 0) != 0; }
  // It is whole or lost: the next one starts counting anew.
  void End() { failures_ = 0; }

  bool lost() const { return lost_; }

 private:
  bool wanted_, lost_;
  int failures_ = 0;
  TimeUs again_ = 0;  // when it is tried again; 0: no try has failed since the last cut
};

}  // namespace tarn::scheduler
