// A request to stop a run, which stops after one more checkpoint if there is anything to save, or without it after a
// deadline. Plain bookkeeping.
#pragma once

#include <utility>

#include "core/message.h"

namespace tarn::scheduler {

class StopWish {
 public:
  // Requests a stop with the reason `as`. From `deadline` on it does not wait for the checkpoint.
  void Want(Shutdown as, TimeUs deadline) {
    wanted_ = true;
    as_ = std::move(as);
    deadline_ = deadline;
  }
  bool wanted() const { return wanted_; }
  bool Overdue(TimeUs now) const { return wanted_ && now >= deadline_; }
  // Replaces the reason.
  void ChangeReason(Shutdown as) { as_ = std::move(as); }
  const Shutdown& as() const { return as_; }
  // The value of Progress.phase.
  const char* phase() const { return as_.code == ErrorCode::kUnavailable ? "failed" : "stopped"; }

  // Records the request of the checkpoint before the stop. False: it was already requested.
  bool BeginCut() { return !std::exchange(cut_begun_, true); }
  // The whole state is in a checkpoint, so the logs are not needed.
  void Keep() { kept_ = true; }
  bool kept() const { return kept_; }

 private:
  bool wanted_ = false, cut_begun_ = false, kept_ = false;
  Shutdown as_;
  TimeUs deadline_ = 0;
};

}  // namespace tarn::scheduler
