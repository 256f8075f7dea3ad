// What the scheduler of a run with a log keeps on disk, and how it goes on from there (rules G1 to G5).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/hash.h"
#include "core/log.h"
#include "scheduler/impl.h"

namespace tarn::scheduler {

// Everything that others may have been told of, or that a restart needs. Figures that only grow with time go along.
std::uint64_t Scheduler::Impl::RevisionHash() const {
  std::uint64_t hash = HashCombine(view().version.value, leases_.revision());
  auto add = [&hash](auto... words) { ((hash = HashCombine(hash, words)), ...); };
  add(membership_.next_incarnation().value, checkpoints_.last().value, whole_.value, schedule_.finished().size(),
      std::uint64_t{best_wanted_} << 2 | std::uint64_t{phase_ == Phase::kBestCheckpoint} << 1 |
          std::uint64_t{membership_.begun()},
      batches_repeated_);
  return hash;
}

SchedulerState Scheduler::Impl::Capture() const {
  SchedulerState state;
  state.run = options_.run;
  Manifest& progress = state.progress;
  FillManifest(&progress, {}, true);
  progress.data = leases_.Capture(&state.leases, &state.last_lease);
  progress.id = checkpoints_.last();
  progress.tables = view().tables;
  progress.next_incarnation = membership_.next_incarnation();
  progress.workers_died = earlier_died_ + membership_.died();
  progress.best_checkpoint = checkpoints_.best();
  progress.generations = checkpoints_.chain();
  membership_.Capture(&state);
  progress.resume_clock = state.largest_end;
  state.best_wanted = best_wanted_ || phase_ == Phase::kBestCheckpoint;
  state.whole = whole_;
  state.whole_directory = whole_directory_;
  state.whole_files = whole_files_;
  if (const Cut* cut = checkpoints_.pending(); cut != nullptr) state.pending_directory = cut->order.directory;
  state.kept = checkpoints_.kept();
  state.outdated = store_->Removing();
  state.outdated.insert(state.outdated.end(), outdated_.begin(), outdated_.end());
  return state;
}

void Scheduler::Impl::Persist(std::size_t sent, TimeUs now, Outbox* out) {
  if (!durable() || state_is_over_) return;
  if (stop_) gate_.End();
  // Also in the step that stops: what a checkpoint replaces goes once the state speaks of that one.
  gate_.Pass(RevisionHash(), sent, out);
  if (gate_.MayBegin(now)) {
    outdated_written_ = outdated_.size();
    const SchedulerState state = Capture();
    store_->WriteState(gate_.Begin(view().version, now), state);
  }
  WarnOfSlowState(now);
  if (!stop_ || !gate_.durable()) return;
  const bool over = stop_->code == ErrorCode::kOk && (stop_phase_ == "done" || kept_by_checkpoint_);
  if (!over) return;
  state_is_over_ = true;
  store_->RemoveState();
}

void Scheduler::Impl::OnWritten(const StoreWritten& written, TimeUs now, Outbox* out) {
  now_ = now;
  const bool is_state = written.what == StoreWritten::What::kState;
  // What this releases has waited for it and leaves, whatever has changed since.
  if (is_state && written.status && gate_.OnWritten(written.number, out))
    RemoveOutdated(std::exchange(outdated_written_, 0));
  const std::size_t sent = out->size();
  if (is_state && !written.status) OnStateFailed(written, now, out);
  if (!is_state) OnManifestWritten(written, now, out);
  if (!stop_) Advance(now, out);
  Persist(sent, now, out);
}

// A file that could not be synced is not synced again: the next state goes into a file of its own, whole.
void Scheduler::Impl::OnStateFailed(const StoreWritten& written, TimeUs now, Outbox* out) {
  if (!gate_.OnFailed(written.number, now)) return;
  outdated_written_ = 0;
  const Error& error = written.status.error();
  const std::string why = "the scheduler's state: " + error.message;
  if (stop_ || gate_.failures() < StateGate::kTriesMax)
    Warn(why);
  else
    Fail(error.code, fmt::format("{} ({} tries)", why, gate_.failures()), now, out);
}

void Scheduler::Impl::WarnOfSlowState(TimeUs now) {
  if (!gate_.writing() || now - gate_.since() < lease_us_ || now < next_slow_) return;
  Warn(
      fmt::format("the disk of the scheduler's state has not answered for {:.0f} s: no view and no lease goes out "
                  "meanwhile",
                  static_cast<double>(now - gate_.since()) * 1e-6));
  next_slow_ = now + kWaitNotePeriodUs;
}

void Scheduler::Impl::RemoveOutdated(std::size_t count) {
  const auto end = outdated_.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto it = outdated_.begin(); it != end; ++it) store_->RemoveCheckpoint(*it);
  outdated_.erase(outdated_.begin(), end);
}

// What a state may speak of goes only once it does not any more.
void Scheduler::Impl::RemoveCheckpoints(std::vector<std::string> directories) {
  if (durable()) {
    outdated_.insert(outdated_.end(), directories.begin(), directories.end());
    return;
  }
  for (const std::string& directory : directories) store_->RemoveCheckpoint(directory);
}

// Rule G3. Called at the end of construction, with the data and the tables resumed as from a checkpoint.
void Scheduler::Impl::Restore(const SchedulerState& state) {
  whole_ = state.whole;
  whole_files_ = state.whole_files;
  best_wanted_ = state.best_wanted;
  membership_.Restore(state);
  leases_.Restore(state.leases, state.last_lease);
  // Not before the first state of this start is on disk: what was read may come from the page cache alone, and the one
  // that a loss of power brings back may go on from what this one calls outdated.
  outdated_ = state.outdated;
  if (!state.pending_directory.empty()) outdated_.push_back(state.pending_directory);
  Say(fmt::format("goes on behind a crash: {} workers of before, logs from checkpoint {} on", state.workers.size(),
                  state.whole.value));
}

// Rule G5: whether a log has ticks of leases that the state from which the scheduler started does not know.
bool Scheduler::Impl::KnowsMore(const Heartbeat& heartbeat) const {
  const auto unknown = [this](const auto& tick) { return tick.position.lease > leases_.last_lease(); };
  return membership_.restarting() &&
         (std::ranges::any_of(heartbeat.fenced, unknown) || std::ranges::any_of(heartbeat.fenced_ticks, unknown));
}

}  // namespace tarn::scheduler
