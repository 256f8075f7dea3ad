#include "scheduler/impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/hash.h"
#include "core/table/table_shape.h"

namespace tarn::scheduler {
namespace {

// Minimum time for which a stop waits for its checkpoint while that makes no progress.
constexpr TimeUs kStopPatienceUs = 60'000'000;

}  // namespace

Scheduler::Impl::Impl(const SchedulerOptions& options, SchedulerStore* store)
    : setup_(options),
      membership_(MembershipOptions(options, setup_), store),
      desk_(options.job, setup_.start_clock, &notes_),
      tables_(options.job),
      epochs_(EpochsOptions(options), {.leases = &desk_.leases(), .membership = &membership_, .notes = &notes_}),
      record_(RecordOptions(options, setup_),
              {.membership = &membership_, .leases = &desk_.leases(), .epochs = &epochs_}),
      agreement_(&membership_, &notes_, setup_.lease_us),
      cuts_(CoordinatorOptions(options, setup_), {.membership = &membership_,
                                                  .leases = &desk_.leases(),
                                                  .store = store,
                                                  .notes = &notes_,
                                                  .manifests = &record_}),
      stop_(setup_.heartbeat_us),
      state_(setup_.has_log(), setup_.lease_us, store, &notes_),
      watch_(options.job.fleet, &membership_, &notes_) {
  if (options.lease_order) desk_.leases().SetOrder(*options.lease_order);
  if (options.resume == nullptr) return;
  desk_.leases().Resume(options.resume->data, options.restore != nullptr);
  std::vector<TableSpec> tables = options.resume->tables;
  for (TableSpec& table : tables) {
    table = AsRun(options.job, table);
    tables_.Resumed(table);
  }
  membership_.current_view()->SetTables(std::move(tables));
  if (options.restore == nullptr) return;
  const SchedulerState& state = *options.restore;  // rule G3
  membership_.Restore(state);
  desk_.leases().Restore(state.leases, state.last_lease);
  cuts_.Restore(state);
  notes_.Info(fmt::format("continues after a crash: {} earlier workers, logs since checkpoint {}", state.workers.size(),
                          state.whole.value));
}

void Scheduler::Impl::Start(TimeUs now) {
  turn_.now = now;
  turn_.next_timer = now + setup_.heartbeat_us / 2;
  watch_.Start(now);
}

void Scheduler::Impl::Handle(Peer from, const Message& message, TimeUs now) {
  turn_.now = now;
  if (stop_.over()) return;
  Dispatch(from, message, now, &turn_.answers);
  turn_.unsettled = true;
}

void Scheduler::Impl::Settle(TimeUs now, Outbox* out) {
  if (!std::exchange(turn_.unsettled, false)) return;
  turn_.now = now;
  const std::size_t sent = out->size();
  std::ranges::move(turn_.answers, std::back_inserter(*out));
  turn_.answers.clear();
  if (!stop_.begun()) Advance(now, out);
  Persist(sent, now, out);
}

void Scheduler::Impl::OnTimer(TimeUs now, Outbox* out) {
  turn_.now = now;
  if (stop_.over()) return;
  watch_.Note(now);
  turn_.next_timer = now + setup_.heartbeat_us / 2;
  if (stop_.begun()) {
    if (stop_.Repeat(now, Mail(out))) cuts_.OnStopped();
    return;
  }
  WatchFleet(now, out);
  if (!stop_.begun()) Advance(now, out);
}

void Scheduler::Impl::WatchFleet(TimeUs now, Outbox* out) {
  const TimeUs since = watch_.listening_since();
  const double lease_seconds = setup_.job.fleet.lease_seconds;
  membership_.DropSilentJoiners(now, since);
  if (auto shard = membership_.shards().Silent(now, since))
    return Fail(ErrorCode::kUnavailable,
                fmt::format("shard {} ({}) was silent for {:g} s and is considered dead: {}", shard->value,
                            membership_.shards().at(*shard).endpoint, lease_seconds, setup_.after_a_lost_shard),
                now, out);
  for (Incarnation id : membership_.workers().Silent(now, since)) {
    notes_.Warn(fmt::format("worker {} (incarnation {}) was silent for {:g} s and is declared dead",
                            membership_.workers().at(id).rank.value, id.value, lease_seconds));
    membership_.Fence(id);
  }
  if (watch_.Deserted(now, epochs_.phase() == Phase::kLeaving || stop_request_.requested()))
    WantStop({ErrorCode::kUnavailable,
              fmt::format("no worker is left, and none has joined for {:g} s; {}",
                          FleetWatch::kWorkerlessLeasesMax * lease_seconds,
                          setup_.keeps_checkpoints() ? "when workers can run again, resume from the last checkpoint"
                                                     : "the job writes no checkpoints: start it again")},
             now, out);
  watch_.WarnOfWaits(now, cuts_.Awaited());
  if (stop_request_.requested() && cuts_.UnderWay()) stop_request_.Observe(cuts_.Progress(now), StopDeadline(now));
  if (stop_request_.Overdue(now)) {
    if (stop_request_.reason().code == ErrorCode::kOk)
      stop_request_.ChangeReason({ErrorCode::kTimeout, "stopped without a checkpoint, which did not complete in time"});
    Stop(stop_request_.reason(), stop_request_.phase(), now, out);
  }
  const bool training = epochs_.phase() == Phase::kTrain && !epochs_.AtBoundary();
  if (training && !stop_request_.requested() && AnythingDone()) cuts_.WantIfDue(now);
}

void Scheduler::Impl::RequestStop(TimeUs now, Outbox* out) {
  turn_.now = now;
  if (stop_.begun()) return;
  // tools/launch compares this reason.
  if (!stop_request_.requested()) return WantStop({ErrorCode::kOk, "stopped"}, now, out);
  stop_request_.ChangeReason({ErrorCode::kOk, "stopped without waiting for the checkpoint"});
  Stop(stop_request_.reason(), stop_request_.phase(), now, out);
}

TimeUs Scheduler::Impl::StopDeadline(TimeUs now) const {
  return now + std::max<TimeUs>(2 * setup_.lease_us, kStopPatienceUs);
}

void Scheduler::Impl::WantStop(Shutdown reason, TimeUs now, Outbox* out) {
  stop_request_.Request(std::move(reason), StopDeadline(now));
  if (setup_.keeps_checkpoints() && AnythingDone())
    Advance(now, out);
  else
    Stop(stop_request_.reason(), stop_request_.phase(), now, out);
}

// Whether a checkpoint could contain anything. Workers that still read their data have done nothing, and would not
// reach the clock of the cut.
bool Scheduler::Impl::AnythingDone() const {
  if (!membership_.formed()) return false;
  if (desk_.leases().granted_any()) return true;
  const bool of_programs = membership_.has_had_programs() && membership_.workers().Live().empty();
  if (of_programs && !view().tables.empty()) return true;  // they may have pushed without a tick
  return cuts_.CutsAtClock() ? membership_.MaxClock() > setup_.start_clock : !view().tables.empty();
}

Status Scheduler::Impl::MayCut() const {
  if (!setup_.keeps_checkpoints())
    return tarn::Fail(ErrorCode::kInvalidArgument, "the job writes no checkpoints: storage.durability = \"none\"");
  if (epochs_.phase() == Phase::kWaiting || !AnythingDone())
    return tarn::Fail(ErrorCode::kUnavailable, "nothing has been trained yet; try again when training has begun");
  if (epochs_.phase() == Phase::kLeaving || stop_request_.requested())
    return tarn::Fail(ErrorCode::kCancelled, "the run is ending; use its last checkpoint");
  return {};
}

void Scheduler::Impl::RequestCheckpoint(TimeUs now, Outbox* out) {
  turn_.now = now;
  if (stop_.begun() || !MayCut()) return;
  cuts_.Want(CutReason::kRequested);
  Advance(now, out);
}

void Scheduler::Impl::Fail(ErrorCode code, std::string reason, TimeUs now, Outbox* out) {
  Stop({code, std::move(reason)}, code == ErrorCode::kDiverged ? "diverged" : "failed", now, out);
}

void Scheduler::Impl::Stop(Shutdown reason, std::string phase, TimeUs now, Outbox* out) {
  if (stop_.begun()) return;
  epochs_.OnStop(now);
  cuts_.OnStop(reason.reason, Mail(out));
  stop_.Begin(std::move(reason), std::move(phase), membership_.EveryPeer(), now);
  if (stop_.Repeat(now, Mail(out))) cuts_.OnStopped();
}

void Scheduler::Impl::OnWritten(const StoreWritten& written, TimeUs now, Outbox* out) {
  using What = StoreWritten::What;
  turn_.now = now;
  // Messages that waited for this write are sent, whatever has changed since.
  if (written.what == What::kState && written.status && state_.OnWritten(written.number, out))
    cuts_.removal().OnStateWritten();
  const std::size_t sent = out->size();
  switch (written.what) {
    case What::kState:
      if (!written.status) OnStateFailed(written, now, out);
      break;
    case What::kManifest:
      if (stop_.begun()) break;
      if (const auto end = cuts_.OnManifestWritten(written, epochs_.Moment(now), Mail(out))) OnCutEnd(*end, now, out);
      break;
    case What::kAddresses:
      if (!written.status) notes_.Warn(written.status.error().message + ": the run continues without this list");
      membership_.OnAddressesWritten(written);
      break;
  }
  if (!stop_.begun()) Advance(now, out);
  Persist(sent, now, out);
}

void Scheduler::Impl::OnStateFailed(const StoreWritten& written, TimeUs now, Outbox* out) {
  if (!state_.OnFailed(written.number, now)) return;
  cuts_.removal().OnStateFailed();
  if (const auto error = state_.JudgeFailure(written.status.error(), stop_.begun()))
    Fail(error->code, error->message, now, out);
}

void Scheduler::Impl::Persist(std::size_t sent, TimeUs now, Outbox* out) {
  if (!state_.active()) return;
  if (stop_.begun()) state_.RunEnds();
  // The step that stops the run writes a state too, because replaced checkpoints are removed only when the state names
  // the new one.
  state_.HoldBack(record_.StateRevision(cuts_), sent, out);
  if (state_.MayWrite(now)) {
    cuts_.removal().OnStateBegun();
    SchedulerState state = record_.MakeState(turn_.now);
    cuts_.Capture(&state);
    state_.Write(state, now);
  }
  state_.WarnIfSlow(now);
  if (!stop_.begun() || !state_.durable() || stop_.reason().code != ErrorCode::kOk) return;
  if (stop_.phase() == "done" || stop_request_.state_saved()) state_.Remove();
}

Progress Scheduler::Impl::progress() const {
  Progress out = record_.MakeProgress(turn_.now);
  const Checkpoints& checkpoints = cuts_.checkpoints();
  out.phase = stop_.PhaseOr(Name(epochs_.phase()));
  out.has_state_hash = checkpoints.has_hash();
  out.state_hash = checkpoints.hash();
  out.last_checkpoint = checkpoints.newest();
  out.best_checkpoint = checkpoints.best();
  return out;
}

std::uint64_t Scheduler::Impl::StateHash() const {
  return HashCombine(record_.AddTo(HashBytes(stop_.PhaseOr(Name(epochs_.phase())))), cuts_.checkpoints().hash());
}

}  // namespace tarn::scheduler
