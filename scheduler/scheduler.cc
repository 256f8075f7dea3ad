#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/hash.h"
#include "core/log.h"
#include "core/table/table_shape.h"
#include "scheduler/impl.h"
#include "scheduler/membership/waits.h"

namespace tarn::scheduler {
namespace {

// How long nodes may take to stop before the scheduler goes.
constexpr int kStopQuietPeriods = 2;
constexpr int kStopPeriodsMax = 10;
// How many leases a fleet stays without any worker.
constexpr int kWorkerlessLeasesMax = 20;

TimeUs ToUs(double seconds) { return static_cast<TimeUs>(seconds * 1e6); }

// Said beside a shard that loads its rows (rule N4): it has adopted no view yet.
bool IsOfLoading(const Message& message) {
  const auto* heartbeat = std::get_if<Heartbeat>(&message.body);
  return heartbeat != nullptr && heartbeat->view.value == 0;
}

// Whether every table is bsp and aggregated: then the bits of the parameters follow from the data alone.
bool IsExact(const Job& job) {
  auto exact = [](const ConsistencySpec& spec) {
    return spec.mode == ConsistencyMode::kBsp && spec.apply == ApplyMode::kAggregated;
  };
  return exact(job.consistency) && std::all_of(job.tables.begin(), job.tables.end(), [&](const auto& table) {
           return !table.second.has_consistency || exact(table.second.consistency);
         });
}

// What becomes of a run one of whose shards is gone.
std::string AfterALostShard(const SchedulerOptions& options) {
  const std::size_t slash = options.checkpoints_directory.rfind('/');
  const std::string run = slash == std::string::npos ? "RUN_DIR" : options.checkpoints_directory.substr(0, slash);
  switch (options.job.storage.durability) {
    case Durability::kNone: break;
    case Durability::kCheckpoint:
      return fmt::format(
          "what it held beyond the last checkpoint is lost. To go on from that: tools/launch --resume {}", run);
    case Durability::kLog:
      return fmt::format("nothing that it had acknowledged is lost. To go on: tools/launch --resume {}", run);
  }
  return "its rows are lost, and the job keeps no checkpoints (durability = \"none\" under [storage])";
}

Membership::Options MembershipOptions(const SchedulerOptions& options) {
  Membership::Options out;
  out.shards = options.job.fleet.servers * options.job.fleet.shards;
  out.shards_per_server = options.job.fleet.shards;
  out.workers = options.job.fleet.workers;
  out.partition_bits = options.job.fleet.partition_bits;
  out.lease_us = ToUs(options.job.fleet.lease_seconds);
  out.heartbeat_us = ToUs(options.job.fleet.heartbeat_seconds);
  out.job_text = options.job_text;
  out.after_a_lost_shard = AfterALostShard(options);
  out.first_incarnation = Incarnation(std::max<std::uint64_t>(options.first_incarnation, 1));
  if (options.job.storage.durability == Durability::kLog)
    out.log = {.run = options.run,
               .recover = options.restore != nullptr,
               .from = options.restore != nullptr  ? options.restore->whole
                       : options.resume != nullptr ? options.resume->id
                                                   : CheckpointId(0)};
  out.ends_together = IsExact(options.job);
  if (options.resume == nullptr) return out;
  if (options.restore != nullptr) out.partition_bits = options.resume->partition_bits;  // the logs know no others
  out.resume_directory = options.resume_directory;
  for (const WorkerBlob& blob : options.resume->blobs) out.blob_bytes[blob.rank] = blob.file.bytes;
  out.start_clock = options.resume->resume_clock;
  out.first_incarnation = std::max(out.first_incarnation, options.resume->next_incarnation);
  return out;
}

Checkpoints::Options CheckpointOptions(const SchedulerOptions& options) {
  Checkpoints::Options out;
  out.storage = options.job.storage;
  out.directory = options.checkpoints_directory;
  out.last = options.last_checkpoint;
  out.kept = options.kept_checkpoints;
  if (options.resume == nullptr) return out;
  out.last = std::max(out.last, options.resume->id);
  out.best = options.resume->best_checkpoint;
  out.resumed_directory = options.resume_directory;
  // Files of one chain are of the same partitions; a restored run keeps its own.
  if (options.restore != nullptr || options.resume->partition_bits == options.job.fleet.partition_bits)
    out.resumed = options.resume->generations;
  out.start_clock = options.resume->resume_clock;
  if (options.restore != nullptr) out.kept = options.restore->kept;
  return out;
}

// A restored run goes on from what its state says.
SchedulerOptions Prepared(SchedulerOptions options) {
  if (options.restore == nullptr) return options;
  options.run = options.restore->run;
  options.resume = &options.restore->progress;
  options.resume_directory = options.restore->whole_directory;
  return options;
}

// Whether clocks mean the same on every shard for some table, so that a checkpoint has to lie between two of them.
bool CutsAtClock(const Job& job) {
  auto keeps_step = [](const ConsistencySpec& spec) {
    return spec.apply == ApplyMode::kAggregated || spec.mode == ConsistencyMode::kBsp;
  };
  return keeps_step(job.consistency) || std::any_of(job.tables.begin(), job.tables.end(), [&](const auto& table) {
           return table.second.has_consistency && keeps_step(table.second.consistency);
         });
}

}  // namespace

Scheduler::Impl::Impl(SchedulerOptions options, SchedulerStore* store)
    : options_(Prepared(std::move(options))),
      store_(store),
      resume_(options_.resume != nullptr ? std::optional(*options_.resume) : std::nullopt),
      fingerprint_(Fingerprint(options_.job)),
      heartbeat_us_(ToUs(options_.job.fleet.heartbeat_seconds)),
      lease_us_(ToUs(options_.job.fleet.lease_seconds)),
      membership_(MembershipOptions(options_)),
      leases_(options_.job, resume_ ? resume_->resume_clock : Clock(0)),
      tables_(options_.job),
      schedule_(options_.job.train, resume_ ? resume_->epochs : std::vector<EpochResult>()),
      checkpoints_(CheckpointOptions(options_)),
      cuts_at_clock_(CutsAtClock(options_.job)) {
  options_.resume = nullptr;  // the caller's; ours is resume_
  const SchedulerState* restore = std::exchange(options_.restore, nullptr);
  if (!resume_) return;
  whole_ = resume_->id;
  whole_directory_ = options_.resume_directory;
  whole_files_ = FilesHash(*resume_);
  leases_.Resume(resume_->data);
  std::vector<TableSpec> tables = resume_->tables;
  for (TableSpec& table : tables) {
    table = AsRun(options_.job, table);
    tables_.Resumed(table);
  }
  membership_.SetTables(std::move(tables));
  batches_repeated_ = resume_->batches_repeated + resume_->batches_behind;
  earlier_samples_ = resume_->samples;
  earlier_died_ = resume_->workers_died;
  earlier_seconds_ = resume_->seconds;
  train_seconds_ = resume_->train_seconds;
  best_lost_ = resume_->best_lost;
  if (restore != nullptr) Restore(*restore);
}

void Scheduler::Impl::Start(TimeUs now) {
  now_ = workers_seen_ = now;
  listening_.Begin(now);
  next_timer_ = now + heartbeat_us_ / 2;
  next_waits_ = now + kWaitNotePeriodUs;
}

void Scheduler::Impl::Hear(Peer from, const Message& message, TimeUs now) {
  now_ = now;
  if (stopped_) return;
  Dispatch(from, message, now, &answers_);
  heard_ = true;
}

void Scheduler::Impl::Settle(TimeUs now, Outbox* out) {
  if (!std::exchange(heard_, false)) return;
  now_ = now;
  const std::size_t sent = out->size();
  std::ranges::move(answers_, std::back_inserter(*out));
  answers_.clear();
  if (!stop_) Advance(now, out);
  Persist(sent, now, out);
}

void Scheduler::Impl::Dispatch(Peer from, const Message& message, TimeUs now, Outbox* out) {
  const Mailer mail = Mail(out);
  const Sender& sender = message.sender;
  if (stop_) {
    stop_heard_ = now;
    if (const auto* request = std::get_if<CheckpointRequest>(&message.body)) {
      if (auto answer = checkpoint_requests_.Ask(from, request->number)) return mail.Send(from, *answer);
    }
    // Who says why it fails has not understood yet (rule S2).
    const auto* farewell = std::get_if<Shutdown>(&message.body);
    if (farewell == nullptr || (farewell->code != ErrorCode::kOk && sender.role != Role::kScheduler))
      mail.Send(from, *stop_);
    else if (sender.role != Role::kScheduler)
      to_stop_.erase(sender.incarnation);
    if (to_stop_.empty()) End();
    return;
  }
  const bool is_join = std::holds_alternative<Join>(message.body);
  if (message.job != fingerprint_ && !(is_join && message.job == 0)) {
    mail.Send(from, Shutdown{.code = ErrorCode::kWrongJob, .reason = "this scheduler runs another job"});
    return;
  }
  if (is_join) {
    auto note = membership_.OnJoin(from, std::get<Join>(message.body), now, mail);
    if (!note.empty()) Say(std::move(note));
    return;
  }
  if (sender.role == Role::kScheduler) {  // a tool
    if (const auto* shutdown = std::get_if<Shutdown>(&message.body)) OnShutdownRequest("a tool", *shutdown, now, out);
    if (const auto* request = std::get_if<CheckpointRequest>(&message.body)) OnCheckpointRequest(from, *request, out);
    return;
  }
  // Sent while a shard loads, over a connection of its own: the shard is answered at another.
  const bool of_loading = IsOfLoading(message);
  if (const ShardNode* shard = membership_.HearShard(sender, of_loading ? std::nullopt : std::optional(from), now)) {
    if (!of_loading) FromShard(*shard, message, now, out);
  } else if (const WorkerNode* worker = membership_.HearWorker(sender, from, now)) {
    FromWorker(*worker, message, now, out);
  } else if (std::holds_alternative<Shutdown>(message.body)) {
    membership_.OnFarewell(sender.incarnation);
  } else {
    if (membership_.workers().Left(sender.incarnation))
      mail.Send(from, Shutdown{.code = ErrorCode::kOk, .reason = "left"});
    else
      mail.Send(from, Shutdown{.code = ErrorCode::kFenced, .reason = "this incarnation is over"});
  }
}

void Scheduler::Impl::FromShard(const ShardNode& shard, const Message& message, TimeUs now, Outbox* out) {
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message.body)) {
    if (KnowsMore(*heartbeat)) {
      Fail(ErrorCode::kCorrupt,
           fmt::format("the log of shard {} knows leases beyond {}, the last in the scheduler's state: the {} in the "
                       "run's folder is an older one, expected the last that the run wrote",
                       shard.shard.value, leases_.last_lease().value, kStateName),
           now, out);
      return;
    }
    membership_.OnHeartbeat(shard.shard, *heartbeat, now, Mail(out));
    totals_.OnHeartbeat(message.sender, *heartbeat);
  } else if (const auto* part = std::get_if<CheckpointPart>(&message.body)) {
    checkpoints_.OnShardPart(shard.shard, *part);
  } else if (const auto* shutdown = std::get_if<Shutdown>(&message.body)) {
    OnShutdownRequest(fmt::format("shard {}", shard.shard.value), *shutdown, now, out);
  }
}

void Scheduler::Impl::FromWorker(const WorkerNode& worker, const Message& message, TimeUs now, Outbox* out) {
  const Incarnation id = worker.incarnation;
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message.body)) {
    membership_.OnHeartbeat(id, *heartbeat, now, Mail(out));
    totals_.OnHeartbeat(message.sender, *heartbeat);
  } else if (const auto* request = std::get_if<LeaseRequest>(&message.body)) {
    OnLeaseRequest(worker, *request, out);
  } else if (const auto* create = std::get_if<CreateTable>(&message.body)) {
    const View& view = membership_.view();
    if (auto table = tables_.Ask(id, create->spec, view.tables, view.routes.partition_bits)) PutTable(*table);
  } else if (const auto* barrier = std::get_if<Barrier>(&message.body)) {
    barriers_.Enter(id, barrier->number);
  } else if (const auto* part = std::get_if<CheckpointPart>(&message.body)) {
    checkpoints_.OnWorkerPart(id, *part);
  } else if (const auto* leave = std::get_if<tarn::Leave>(&message.body)) {
    const Peer peer = worker.peer;
    membership_.OnLeave(id, *leave);
    Mail(out).Send(peer, Shutdown{.code = ErrorCode::kOk, .reason = "left"});
  } else if (const auto* shutdown = std::get_if<Shutdown>(&message.body)) {
    OnShutdownRequest(fmt::format("worker {}", worker.rank.value), *shutdown, now, out);
  }
}

void Scheduler::Impl::PutTable(const TableSpec& spec) {
  std::string note = fmt::format("table {}: {} {} x {}", spec.id.value, spec.name, Name(spec.kind), spec.dim);
  for (const TableSpec& table : view().tables)
    if (table.id == spec.id) note = fmt::format("table {} goes on with {}", spec.name, SettingsChange(table, spec));
  membership_.PutTable(spec);
  WidenOrder();
  tables_.Added(spec, view().version);
  Say(std::move(note));
}

void Scheduler::Impl::OnLeaseRequest(const WorkerNode& worker, const LeaseRequest& request, Outbox* out) {
  const Incarnation id = worker.incarnation;
  const bool sizes_were_known = leases_.sizes_known();
  if (auto sizes = leases_.SetSizes(request.rows); !sizes) {
    if (!leases_.sizes_known()) {  // nobody could do better
      Fail(sizes.error().code, sizes.error().message, now_, out);
      return;
    }
    Mail(out).Send(worker.peer, Shutdown{.code = sizes.error().code, .reason = sizes.error().message});
    Warn(fmt::format("refused worker {}: {}", worker.rank.value, sizes.error().message));
    membership_.Fence(id);
    return;
  }
  if (leases_.sizes_known() && !sizes_were_known) WarnOfIdleWorkers();
  for (const LeaseDone& done : request.done) {
    if (!std::isfinite(done.quality.loss_sum)) {
      Fail(ErrorCode::kDiverged,
           fmt::format("worker {}: training has diverged by clock {}: the loss that it reports of lease {} is not a "
                       "finite number",
                       worker.rank.value, worker.clock.value, done.lease.value),
           now_, out);
      return;
    }
    leases_.Done(id, done);
  }
  if (auto again = requests_.Ask(id, request.number, request.want)) Mail(out).Send(worker.peer, *again);
}

void Scheduler::Impl::WarnOfIdleWorkers() {
  const std::uint64_t splits = leases_.train().size(), workers = options_.job.fleet.workers;
  if (splits >= workers) return;
  Warn(
      fmt::format("the training set has {} rows in {} split{} of {} rows, for {} workers: {} of them get no data in an "
                  "epoch; expected fewer workers, or a smaller train.batch_rows or data.split_rows",
                  leases_.rows()[0], splits, splits == 1 ? "" : "s", leases_.split_rows(), workers, workers - splits));
}

void Scheduler::Impl::OnShutdownRequest(const std::string& who, const Shutdown& shutdown, TimeUs now, Outbox* out) {
  if (shutdown.code == ErrorCode::kOk)
    RequestStop(now, out);
  else  // most reasons of shards already begin with the shard
    Fail(shutdown.code, shutdown.reason.starts_with(who + ": ") ? shutdown.reason : who + ": " + shutdown.reason, now,
         out);
}

void Scheduler::Impl::OnTimer(TimeUs now, Outbox* out) {
  now_ = now;
  if (stopped_) return;
  listening_.Note(now, lease_us_ / 2);
  next_timer_ = now + heartbeat_us_ / 2;
  if (stop_) {
    RepeatStop(now, out);
    return;
  }
  WatchFleet(now, out);
  if (!stop_) Advance(now, out);
}

void Scheduler::Impl::WatchFleet(TimeUs now, Outbox* out) {
  membership_.DropSilentJoiners(now, listening_.since());
  if (auto shard = membership_.shards().Silent(now, listening_.since())) {
    Fail(ErrorCode::kUnavailable,
         fmt::format("shard {} ({}) has not been heard for {:g} s: {}", shard->value,
                     membership_.shards().at(*shard).endpoint, options_.job.fleet.lease_seconds,
                     AfterALostShard(options_)),
         now, out);
    return;
  }
  for (Incarnation id : membership_.workers().Silent(now, listening_.since())) {
    Warn(fmt::format("worker {} (incarnation {}) has not been heard for {:g} s: it is dead",
                     membership_.workers().at(id).rank.value, id.value, options_.job.fleet.lease_seconds));
    membership_.Fence(id);
  }
  WatchForWorkers(now, out);
  SayWaits(now);
  if (stop_wanted_ && now >= stop_deadline_) {
    if (stop_as_.code == ErrorCode::kOk)
      stop_as_ = {ErrorCode::kTimeout, "stopped without a checkpoint: it did not come to an end in time"};
    StopAsWanted(now, out);
  }
  const bool periodic = phase_ == Phase::kTrain && !AtBoundary() && !stop_wanted_ && AnythingDone();
  if (periodic && !CutUnderWay() &&
      checkpoints_.Due(now, membership_.shards().MinClock(), membership_.shards().LogBytes()))
    WantCut(CutReason::kPeriodic);
}

// Whom the fleet waits for; empty: nobody.
std::string Scheduler::Impl::WaitText(TimeUs now) const {
  std::string text = WaitsFor(membership_, options_.job.fleet, now, listening_.since());
  if (!text.empty() || !membership_.formed()) return text;
  TickWaits waits;
  const auto bound = [&](const ConsistencySpec& spec) {
    if (spec.mode == ConsistencyMode::kAsp) return;
    const std::uint64_t clocks = spec.mode == ConsistencyMode::kSsp ? spec.staleness : 0;
    waits.bound = std::min(waits.bound.value_or(clocks), clocks);
  };
  for (const TableSpec& table : view().tables) bound(table.consistency);
  const Cut* cut = checkpoints_.pending();
  if (cut != nullptr && cut->order.at_clock && PartsMissing()) waits.cut = cut->order.clock;
  return WaitsForTicks(membership_, waits, now, listening_.since());
}

void Scheduler::Impl::SayWaits(TimeUs now) {
  if (now < next_waits_) return;
  std::string text = WaitText(now);
  if (text.empty()) return;
  Warn(std::move(text));
  next_waits_ = now + kWaitNotePeriodUs;
}

void Scheduler::Impl::RequestStop(TimeUs now, Outbox* out) {
  now_ = now;
  if (stop_) return;
  if (stop_wanted_) {
    stop_as_ = {ErrorCode::kOk, "stopped without waiting for the checkpoint"};
    StopAsWanted(now, out);
    return;
  }
  WantStop({ErrorCode::kOk, "stopped"}, now, out);
}

void Scheduler::Impl::WantStop(Shutdown as, TimeUs now, Outbox* out) {
  stop_wanted_ = true;
  stop_as_ = std::move(as);
  stop_deadline_ = now + std::max<TimeUs>(2 * lease_us_, 60'000'000);
  if (options_.job.storage.durability == Durability::kNone || !AnythingDone())
    StopAsWanted(now, out);
  else
    Advance(now, out);
}

void Scheduler::Impl::StopAsWanted(TimeUs now, Outbox* out) {
  const bool failed = stop_as_.code == ErrorCode::kUnavailable;
  Stop(stop_as_.code, stop_as_.reason, failed ? "failed" : "stopped", now, out);
}

// Whether there may be something that a checkpoint could keep. Workers that still read their data have done nothing,
// and would not come to the clock at which it is cut.
bool Scheduler::Impl::AnythingDone() const {
  if (!membership_.formed()) return false;
  if (leases_.granted_any()) return true;
  const Clock start = resume_ ? resume_->resume_clock : Clock(0);
  return cuts_at_clock_ ? membership_.MaxClock() > start : !view().tables.empty();
}

// A fleet whose workers are all gone for long ends, rather than hold its machines until somebody looks.
void Scheduler::Impl::WatchForWorkers(TimeUs now, Outbox* out) {
  const bool there = !membership_.workers().Live().empty() || membership_.workers().waiting() > 0;
  if (there || !deserted_ || phase_ == Phase::kLeaving || stop_wanted_) {
    workers_seen_ = now;
    return;
  }
  workers_seen_ = std::max(workers_seen_, listening_.since());
  if (now - workers_seen_ <= kWorkerlessLeasesMax * lease_us_) return;
  WantStop({ErrorCode::kUnavailable,
            fmt::format("no worker is left, and none has come back for {:g} s; once workers can run again, resume from "
                        "the last checkpoint",
                        kWorkerlessLeasesMax * options_.job.fleet.lease_seconds)},
           now, out);
}

void Scheduler::Impl::RequestCheckpoint(TimeUs now, Outbox* out) {
  now_ = now;
  if (stop_ || !MayCutNow()) return;
  WantCut(CutReason::kRequested);
  Advance(now, out);
}

void Scheduler::Impl::Fail(ErrorCode code, std::string reason, TimeUs now, Outbox* out) {
  Stop(code, std::move(reason), code == ErrorCode::kDiverged ? "diverged" : "failed", now, out);
}

void Scheduler::Impl::Stop(ErrorCode code, std::string reason, const char* phase, TimeUs now, Outbox* out) {
  if (stop_) return;
  if (training_) train_seconds_ += static_cast<double>(now - train_since_) * 1e-6;
  if (training_ && granted_) train_end_ = now;
  training_ = false;
  stop_ = Shutdown{.code = code, .reason = std::move(reason)};
  stop_phase_ = phase;
  stop_since_ = stop_heard_ = now;
  if (const Cut* cut = checkpoints_.pending(); cut != nullptr && !cut->hash_only())
    abandoned_.push_back({cut->order.id, cut->order.directory, view().version});
  to_stop_ = membership_.EveryPeer();
  SendAnswers(checkpoint_requests_.EndAll(ErrorCode::kCancelled, "the run ended before it: " + stop_->reason), out);
  RepeatStop(now, out);
}

void Scheduler::Impl::End() {
  stopped_ = true;
  for (const Abandoned& gone : abandoned_) store_->RemoveCheckpoint(gone.directory);
}

void Scheduler::Impl::RepeatStop(TimeUs now, Outbox* out) {
  const bool quiet = now - stop_heard_ >= kStopQuietPeriods * heartbeat_us_;
  if (to_stop_.empty() || quiet || now - stop_since_ >= kStopPeriodsMax * heartbeat_us_) {
    End();
    return;
  }
  if (stop_told_ != 0 && now - stop_told_ < heartbeat_us_) return;
  stop_told_ = std::max<TimeUs>(now, 1);
  for (const auto& [id, peer] : to_stop_) Mail(out).Send(peer, *stop_);
}

Progress Scheduler::Impl::progress() const {
  Progress out;
  out.phase = stop_ ? stop_phase_ : std::string(Name(phase_));
  out.epoch = leases_.epoch();
  out.samples = Samples();
  out.samples_here = out.samples - std::min(out.samples, earlier_samples_);
  if (leases_.sizes_known()) out.samples_total = leases_.rows()[0] * options_.job.train.epochs;
  out.seconds = Seconds(now_);
  out.train_seconds = TrainSeconds(now_);
  out.train = leases_.train().quality();
  out.epochs = schedule_.finished();
  out.staleness = totals_.Staleness();
  out.counters = totals_.Counters();
  for (const WorkerNode* worker : membership_.workers().Live()) {
    WorkerProgress& entry = out.workers.emplace_back();
    entry.rank = worker->rank;
    entry.incarnation = worker->incarnation;
    entry.clock = worker->clock;
    entry.acked_clock = worker->acked_clock;
    totals_.Fill(&entry);
  }
  out.workers_live = static_cast<std::uint32_t>(out.workers.size());
  out.workers_waiting = membership_.workers().waiting();
  out.shards_joined = membership_.shards().joined();
  out.workers_died = earlier_died_ + membership_.died();
  out.batches_repeated = batches_repeated_;
  std::copy(leases_.rows(), leases_.rows() + 3, out.rows);
  out.min_clock = membership_.shards().MinClock();
  out.max_clock = membership_.MaxClock();
  out.has_state_hash = checkpoints_.has_hash();
  out.state_hash = checkpoints_.hash();
  out.last_checkpoint = checkpoints_.newest();
  out.best_checkpoint = checkpoints_.best();
  out.best_lost = best_lost_;
  return out;
}

double Scheduler::Impl::Seconds(TimeUs now) const {
  if (!granted_) return earlier_seconds_;
  const TimeUs end = training_ ? now : train_end_;
  return earlier_seconds_ + static_cast<double>(end - first_grant_) * 1e-6;
}

double Scheduler::Impl::TrainSeconds(TimeUs now) const {
  return train_seconds_ + (training_ ? static_cast<double>(now - train_since_) * 1e-6 : 0);
}

std::uint64_t Scheduler::Impl::StateHash() const {
  std::uint64_t hash = HashBytes(stop_ ? stop_phase_ : std::string(Name(phase_)));
  auto add = [&](std::uint64_t word) { hash = HashCombine(hash, word); };
  add(view().version.value);
  for (const WorkerEntry& entry : view().workers) {
    add(entry.incarnation.value);
    add(static_cast<std::uint64_t>(entry.state));
    add(entry.join.value);
    add(entry.end.value);
  }
  for (const ShardNode& shard : membership_.shards().all()) {
    add(shard.confirmed.value);
    add(shard.min_clock.value);
  }
  for (const auto& [id, worker] : membership_.workers().all()) {
    add(id.value);
    add(worker.acked_clock.value);
    add(worker.position.lease.value);
    add(worker.position.rows);
  }
  add(leases_.epoch());
  add(leases_.ceiling().value);
  for (std::uint64_t rows : leases_.Snapshot({}, true).trained) add(rows);
  add(checkpoints_.hash());
  return hash;
}

Scheduler::Scheduler(SchedulerOptions options, SchedulerStore* store)
    : impl_(std::make_unique<Impl>(std::move(options), store)) {}
Scheduler::~Scheduler() = default;

void Scheduler::Start(TimeUs now) { impl_->Start(now); }
void Scheduler::OnMessage(Peer from, Message message, TimeUs now, Outbox* out) {
  impl_->Hear(from, message, now);
  impl_->Settle(now, out);
}
void Scheduler::Hear(Peer from, Message message, TimeUs now) { impl_->Hear(from, message, now); }
void Scheduler::Settle(TimeUs now, Outbox* out) { impl_->Settle(now, out); }
void Scheduler::OnTimer(TimeUs now, Outbox* out) {
  impl_->Settle(now, out);
  const std::size_t sent = out->size();
  impl_->OnTimer(now, out);
  impl_->Persist(sent, now, out);
}
TimeUs Scheduler::NextTimer() const { return impl_->NextTimer(); }
void Scheduler::OnWritten(const StoreWritten& written, TimeUs now, Outbox* out) {
  impl_->Settle(now, out);
  impl_->OnWritten(written, now, out);
}
void Scheduler::RequestStop(TimeUs now, Outbox* out) {
  impl_->Settle(now, out);
  const std::size_t sent = out->size();
  impl_->RequestStop(now, out);
  impl_->Persist(sent, now, out);
}
void Scheduler::RequestCheckpoint(TimeUs now, Outbox* out) {
  impl_->Settle(now, out);
  const std::size_t sent = out->size();
  impl_->RequestCheckpoint(now, out);
  impl_->Persist(sent, now, out);
}
bool Scheduler::stopping() const { return impl_->stopping(); }
bool Scheduler::stopped() const { return impl_->stopped(); }
const Shutdown& Scheduler::stop_reason() const { return impl_->stop_reason(); }
const View& Scheduler::view() const { return impl_->view(); }
Progress Scheduler::progress() const { return impl_->progress(); }
std::vector<Note> Scheduler::TakeNotes() { return impl_->TakeNotes(); }
std::uint64_t Scheduler::StateHash() const { return impl_->StateHash(); }

}  // namespace tarn::scheduler
