// A pending request to stop the run. The run first writes a checkpoint if there is anything to save; at the deadline it
// stops without one. A plain value.
#pragma once

#include <cstdint>
#include <utility>

#include "core/message.h"

namespace tarn::scheduler {

class StopRequest {
 public:
  void Request(Shutdown reason, TimeUs deadline) {
    requested_ = true;
    reason_ = std::move(reason);
    deadline_ = deadline;
  }
  // `progress`: of the checkpoint. If it has changed, the deadline moves.
  void Observe(std::uint64_t progress, TimeUs deadline) {
    if (std::exchange(progress_, progress) != progress) deadline_ = deadline;
  }
  bool requested() const { return requested_; }
  bool Overdue(TimeUs now) const { return requested_ && now >= deadline_; }
  void ChangeReason(Shutdown reason) { reason_ = std::move(reason); }
  const Shutdown& reason() const { return reason_; }
  // The value of Progress.phase.
  const char* phase() const { return reason_.code == ErrorCode::kUnavailable ? "failed" : "stopped"; }

  // Marks the checkpoint of the stop as requested. Returns false if it already was.
  bool BeginCut() { return !std::exchange(cut_begun_, true); }
  // Marks that a checkpoint contains the whole state; the scheduler's state and the logs may be removed.
  void MarkStateSaved() { state_saved_ = true; }
  bool state_saved() const { return state_saved_; }

 private:
  bool requested_ = false, cut_begun_ = false, state_saved_ = false;
  Shutdown reason_;
  TimeUs deadline_ = 0;
  std::uint64_t progress_ = 0;
};

}  // namespace tarn::scheduler
