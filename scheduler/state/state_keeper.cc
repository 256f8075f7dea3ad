#include "scheduler/state/state_keeper.h"

#include <fmt/format.h>

#include "core/log.h"

namespace tarn::scheduler {

StateKeeper::StateKeeper(bool has_log, TimeUs slow_us, SchedulerStore* store, Notes* notes)
    : has_log_(has_log), slow_us_(slow_us), store_(store), notes_(notes) {}

void StateKeeper::Write(const SchedulerState& state, TimeUs now) {
  store_->WriteState(gate_.Begin(state.version, now), state);
}

void StateKeeper::WarnIfSlow(TimeUs now) {
  if (!gate_.writing() || now - gate_.since() < slow_us_ || now < next_slow_) return;
  notes_->Warn(
      fmt::format("writing the scheduler's state has taken {:.0f} s so far: no view and no lease is sent "
                  "meanwhile",
                  static_cast<double>(now - gate_.since()) * 1e-6));
  next_slow_ = now + kWaitNotePeriodUs;
}

void StateKeeper::Remove() {
  over_ = true;
  store_->RemoveState();
}

std::optional<Error> StateKeeper::JudgeFailure(const Error& error, bool ends) {
  std::string why = "the scheduler's state: " + error.message;
  if (!ends && gate_.failures() >= StateGate::kTriesMax)
    return Error{error.code, fmt::format("{} ({} attempts)", why, gate_.failures())};
  notes_->Warn(std::move(why));
  return std::nullopt;
}

}  // namespace tarn::scheduler
