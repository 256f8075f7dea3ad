// What the scheduler of a run with a log keeps on disk, and how it goes on from there (rules G1 to G5).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/hash.h"
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
  if (!durable() || stopped_ || state_is_over_) return;
  // Also in the step that stops: shards may hear of a view that came before the end.
  const std::uint64_t revision = RevisionHash();
  if (revision != written_) {
    if (Status status = store_->WriteState(Capture()); !status) {
      out->erase(out->begin() + static_cast<std::ptrdiff_t>(sent), out->end());
      const std::string why = "the scheduler's state: " + status.error().message;
      return stop_ ? Warn(why) : Fail(status.error().code, why, now, out);
    }
    written_ = revision;
  }
  if (stop_) {
    const bool over = stop_->code == ErrorCode::kOk && (stop_phase_ == "done" || kept_by_checkpoint_);
    if (!over) return;
    state_is_over_ = true;
    if (Status removed = store_->RemoveState(); !removed) return Warn(removed.error().message);
  }
  RemoveOutdated();
}

void Scheduler::Impl::RemoveOutdated() {
  for (const std::string& directory : std::exchange(outdated_, {})) store_->RemoveCheckpoint(directory);
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
  for (const std::string& directory : state.outdated) store_->RemoveCheckpoint(directory);
  if (!state.pending_directory.empty()) store_->RemoveCheckpoint(state.pending_directory);
  Say(fmt::format("goes on behind a crash: {} workers of before, logs from checkpoint {} on", state.workers.size(),
                  state.whole.value));
}

// Rule G5: whether a log has ticks of leases that the state from which the scheduler started does not know.
bool Scheduler::Impl::KnowsMore(const Heartbeat& heartbeat) const {
  const auto unknown = [this](const auto& tick) { return tick.position.lease > leases_.last_lease(); };
  return membership_.restarting() &&
         (std::ranges::any_of(heartbeat.fenced, unknown) || std::ranges::any_of(heartbeat.fenced_ticks, unknown));
}

void Membership::Capture(SchedulerState* state) const {
  state->version = view_.version;
  state->epoch = view_.routes.epoch;
  state->owners = view_.routes.owners;
  state->workers = view_.workers;
  state->proposal = view_.proposal.id;
  state->largest_end = largest_end_;
  state->begun = begun();
  for (const ShardNode& shard : shards_) state->logged.push_back(shard.logged);
}

void Membership::Restore(const SchedulerState& state) {
  view_.version = state.version;
  view_.routes.epoch = state.epoch;
  view_.routes.owners = state.owners;
  view_.workers = state.workers;
  view_.proposal.id = state.proposal;
  view_.whole = state.whole;
  largest_end_ = std::max(largest_end_, state.largest_end);
  begun_ = restarting_ = admit_together_ = true;
  for (std::size_t i = 0; i < std::min(shards_.size(), state.logged.size()); ++i) shards_[i].logged = state.logged[i];
  for (WorkerEntry& entry : view_.workers) {
    if (entry.state == WorkerState::kEnded) continue;
    if (entry.state == WorkerState::kLive) ++died_;
    entry.state = WorkerState::kFencing;
    WorkerNode worker;
    worker.rank = entry.rank;
    worker.incarnation = entry.incarnation;
    worker.state = WorkerNode::State::kFencing;
    worker.join = worker.clock = worker.acked_clock = entry.join;
    workers_[entry.incarnation] = worker;
    fenced_[entry.incarnation] = {};
  }
}

}  // namespace tarn::scheduler
