// The wish to stop a run: it is fulfilled after one more checkpoint, where there is anything to keep, or without it
// after a time. Plain bookkeeping.
#pragma once

#include <utility>

#include "core/message.h"

namespace tarn::scheduler {

class StopWish {
 public:
  // The run shall stop with `as` as its reason; at `deadline` it does not wait for the checkpoint any longer.
  void Want(Shutdown as, TimeUs deadline) {
    wanted_ = true;
    as_ = std::move(as);
    deadline_ = deadline;
  }
  bool wanted() const { return wanted_; }
  bool Overdue(TimeUs now) const { return wanted_ && now >= deadline_; }
  // It stops for another reason than was wanted.
  void ChangeReason(Shutdown as) { as_ = std::move(as); }
  const Shutdown& as() const { return as_; }
  // As Progress.phase spells it.
  const char* phase() const { return as_.code == ErrorCode::kUnavailable ? "failed" : "stopped"; }

  // The checkpoint before the stop is wanted. False: it was before.
  bool BeginCut() { return !std::exchange(cut_begun_, true); }
  // The run stops with all that it has trained in a checkpoint: nobody needs the logs.
  void Keep() { kept_ = true; }
  bool kept() const { return kept_; }

 private:
  bool wanted_ = false, cut_begun_ = false, kept_ = false;
  Shutdown as_;
  TimeUs deadline_ = 0;
};

}  // namespace tarn::scheduler
