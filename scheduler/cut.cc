// Checkpoints from the wish to the manifest (rules K1-K4, K6).
#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "scheduler/impl.h"

namespace tarn::scheduler {
namespace {

// How often the best checkpoint is tried, and how long the fleet waits in between for a disk that may have room again.
constexpr int kBestTriesMax = 3;
constexpr TimeUs kBestPauseUs = 10'000'000;

}  // namespace

void Scheduler::Impl::WantCut(CutReason reason) { wanted_ = wanted_ ? std::max(*wanted_, reason) : reason; }

// Nothing is being trained, and nothing will be until the scheduler says so: every push of the epoch is acknowledged.
bool Scheduler::Impl::AtBoundary() const { return phase_ != Phase::kTrain || leases_.TrainDone(); }

// It costs a look at every row: only what may be the last word says it.
bool Scheduler::Impl::WantsWholeHash(CutReason reason) const {
  switch (reason) {
    case CutReason::kPeriodic:
    case CutReason::kRequested: return false;
    case CutReason::kBest: return !schedule_.Another();
    case CutReason::kHash:
    case CutReason::kFinal:
    case CutReason::kStop: return true;
  }
  return true;
}

bool Scheduler::Impl::BeginWanted(TimeUs now) {
  if (checkpoints_.pending() != nullptr) return true;  // one at a time
  if (membership_.restarting()) return true;           // the clocks of those who trained before are not known yet
  if (!AtBoundary() && (cuts_at_clock_ || DrainsFor(*wanted_))) return false;
  PlaceOrder(leases_.ceiling(), now);
  return true;
}

void Scheduler::Impl::PlaceOrder(Clock clock, TimeUs now) {
  if (cuts_at_clock_ && leases_.by_rank() && leases_.sizes_known()) clock = std::min(clock, leases_.ceiling());
  Cut& cut = checkpoints_.Begin({*wanted_, cuts_at_clock_, clock, WantsWholeHash(*wanted_)}, now,
                                membership_.shards().MinClock());
  wanted_.reset();
  cut.at_boundary = AtBoundary();
  for (const WorkerNode* worker : membership_.workers().Live()) cut.had_workers.insert(worker->incarnation);
  cut.order.blobs = !cut.hash_only() && WorkersKeepSome();
  if (cuts_at_clock_) {
    leases_.RaiseCeiling(clock);
    leases_.Hold();
  } else {
    const Positions positions = membership_.workers().LivePositions();
    FillManifest(&cut.manifest, positions, true);
    cut.samples_noted = leases_.Samples(positions);
  }
  if (!cut.hash_only()) checkpoint_requests_.Ordered(cut.order.id);
  membership_.SetOrder(cut.order);
  if (cuts_at_clock_) ordered_version_ = membership_.view().version;
}

// Where shards cut where they stand, workers stop first, so that nothing is pushed beyond the noted positions. Programs
// without leases have none, and may never tick.
bool Scheduler::Impl::DrainsFor(CutReason reason) const {
  return reason == CutReason::kStop && !cuts_at_clock_ && leases_.granted_any();
}

// A checkpoint that has to be cut again, of a fleet that has drained.
bool Scheduler::Impl::PlaceWanted(TimeUs now) {
  if (!wanted_ || checkpoints_.pending() != nullptr) return false;
  PlaceOrder(leases_.ceiling(), now);
  return true;
}

void Scheduler::Impl::WarnOfUndrained() {
  for (const WorkerNode* worker : membership_.workers().Live())
    if (worker->drained != view().proposal.id)
      Warn(
          fmt::format("worker {} has not finished its batch for {:g} s: the checkpoint is cut without waiting for it, "
                      "and what it trains meanwhile may be trained again after a resume",
                      worker->rank.value, options_.job.fleet.lease_seconds));
}

Status Scheduler::Impl::MayCutNow() const {
  if (options_.job.storage.durability == Durability::kNone)
    return tarn::Fail(ErrorCode::kInvalidArgument,
                      "the job keeps no checkpoints: its file has durability = \"none\" under [storage]");
  if (phase_ == Phase::kWaiting || !AnythingDone())
    return tarn::Fail(ErrorCode::kUnavailable, "nothing has been trained yet; try again once the training has begun");
  if (phase_ == Phase::kLeaving || stop_wanted_)
    return tarn::Fail(ErrorCode::kCancelled, "the run is ending; its last checkpoint is the one to use");
  return {};
}

void Scheduler::Impl::OnCheckpointRequest(Peer from, const CheckpointRequest& request, Outbox* out) {
  if (auto known = checkpoint_requests_.Ask(from, request.number)) return Mail(out).Send(from, *known);
  std::optional<CheckpointRequests::Answer> answer;
  if (const Status may = MayCutNow(); !may)
    answer = checkpoint_requests_.Reply(request.number, may.error().code, may.error().message);
  else if (state_is_cut_ && !checkpoints_.newest().empty())
    answer = checkpoint_requests_.Reply(request.number, ErrorCode::kOk, checkpoints_.newest());
  if (answer) return SendAnswers({*answer}, out);
  Mail(out).Send(from, CheckpointRequest{request.number, ErrorCode::kOk, WaitText(now_), {}});
  if (checkpoint_requests_.Unordered()) WantCut(CutReason::kRequested);
}

void Scheduler::Impl::SendAnswers(const std::vector<CheckpointRequests::Answer>& answers, Outbox* out) const {
  for (const auto& [to, reply] : answers) Mail(out).Send(to, reply);
}

void Scheduler::Impl::FillManifest(Manifest* manifest, const Positions& at, bool trust_done) const {
  manifest->job_text = options_.job_text;
  manifest->fingerprint = fingerprint_;
  manifest->partition_bits = view().routes.partition_bits;
  manifest->data = leases_.Snapshot(at, trust_done);
  manifest->epochs = schedule_.finished();
  std::uint64_t samples = std::uint64_t{leases_.epoch()} * leases_.rows()[0];
  for (std::uint64_t rows : manifest->data.trained) samples += rows;
  manifest->samples = samples;
  manifest->batches_repeated = batches_repeated_;
  manifest->seconds = Seconds(now_);
  manifest->train_seconds = TrainSeconds(now_);
  manifest->best_lost = best_lost_;
}

// Whether workers have, or will have, something of their own: what the job says of tables holds before they are asked
// for.
bool Scheduler::Impl::WorkersKeepSome() const {
  const auto pushes_largest = [](const auto& table) { return table.push_codec == ValueCodec::kTopK; };
  return std::ranges::any_of(view().tables, pushes_largest) ||
         std::ranges::any_of(options_.job.tables | std::views::values, pushes_largest);
}

// A table has come while a checkpoint is being written.
void Scheduler::Impl::WidenOrder() {
  Cut* cut = checkpoints_.pending();
  if (cut == nullptr || cut->writes_manifest || cut->hash_only() || cut->order.blobs || !WorkersKeepSome()) return;
  cut->order.blobs = true;
  membership_.SetOrder(cut->order);
}

// Whether what the worker has of its own belongs into the checkpoint (rule K9).
bool Scheduler::Impl::OwesBlob(const Cut& cut, const WorkerNode& worker) const {
  if (!cut.order.blobs || worker.state != WorkerNode::State::kLive) return false;
  return cut.order.at_clock ? worker.join <= cut.order.clock : cut.had_workers.contains(worker.incarnation);
}

std::vector<WorkerBlob> Scheduler::Impl::BlobsOf(const Cut& cut) {
  std::vector<WorkerBlob> blobs;
  for (const auto& [id, worker] : membership_.workers().all()) {
    if (OwesBlob(cut, worker))
      blobs.push_back({worker.rank, id, cut.blobs.at(id)});
    else if (cut.order.blobs && cut.had_workers.contains(id))
      Warn(fmt::format("checkpoint {} is without the state of worker {}, which is gone", cut.order.id.value,
                       worker.rank.value));
  }
  std::ranges::sort(blobs, {}, &WorkerBlob::rank);
  return blobs;
}

bool Scheduler::Impl::PartsMissing() const {
  const Cut& cut = *checkpoints_.pending();
  if (!checkpoints_.AllShards(membership_.shards().size())) return true;
  for (const auto& [id, worker] : membership_.workers().all())
    if (OwesBlob(cut, worker) && !cut.blobs.contains(id)) return true;
  if (!cut.order.at_clock) return false;
  for (const auto& [id, worker] : membership_.workers().all()) {
    if (cut.workers.contains(id)) continue;
    if (worker.state == WorkerNode::State::kFencing) return true;  // its verdict will say where it was
    if (worker.state == WorkerNode::State::kLive && worker.join < cut.order.clock) return true;
  }
  return false;
}

bool Scheduler::Impl::AdvanceCut(TimeUs now, Outbox* out) {
  RemoveAbandoned();
  if (checkpoints_.pending() == nullptr || checkpoints_.pending()->writes_manifest) return false;
  ShardId shard;
  if (const CheckpointPart* failed = checkpoints_.Failed(&shard)) {
    if (failed->code == ErrorCode::kNotFound && checkpoints_.pending()->order.base.value != 0)
      CutInFull(failed->message);
    else
      FailCut(failed->code, fmt::format("shard {}: {}", shard.value, failed->message), now, out);
    return true;
  }
  if (PartsMissing()) return false;
  WriteManifest(out);
  return true;
}

void Scheduler::Impl::WriteManifest(Outbox* out) {
  Cut& cut = *checkpoints_.pending();
  Manifest& manifest = cut.manifest;
  if (cut.order.at_clock) {
    Positions at;
    for (const WorkerNode* worker : membership_.workers().Live()) at[worker->incarnation] = {};
    for (const auto& [id, part] : cut.workers) at[id] = part.position;
    FillManifest(&manifest, at, false);
    manifest.resume_clock = cut.order.clock;
  } else {
    manifest.resume_clock = membership_.MaxClock();
    const std::uint64_t behind = Samples() - std::min(Samples(), cut.samples_noted);
    const std::uint64_t batch = options_.job.train.batch_rows;
    manifest.batches_behind = (behind + batch - 1) / batch;
  }
  manifest.id = cut.order.id;
  manifest.tables = view().tables;
  manifest.next_incarnation = membership_.next_incarnation();
  manifest.workers_died = earlier_died_ + membership_.died();
  manifest.best_checkpoint = cut.reason == CutReason::kBest ? cut.order.directory : checkpoints_.best();
  manifest.best_lost = cut.reason != CutReason::kBest && best_lost_;
  if (!cut.order.at_clock)
    for (const auto& [id, part] : cut.shards) manifest.resume_clock = std::max(manifest.resume_clock, part.max_clock);
  manifest.generations = checkpoints_.Generations(manifest.resume_clock);
  manifest.state_hash = checkpoints_.WholeHash();
  manifest.blobs = BlobsOf(cut);
  if (cut.hash_only()) return CompleteCut(out);
  cut.writes_manifest = true;
  store_->WriteManifest(cut.order.id, cut.order.directory, manifest);
}

// Of one that was given up meanwhile the directory goes.
void Scheduler::Impl::OnManifestWritten(const StoreWritten& written, TimeUs now, Outbox* out) {
  const Cut* cut = checkpoints_.pending();
  if (stop_ || cut == nullptr || !cut->writes_manifest || cut->order.id.value != written.number) return;
  if (written.status) return CompleteCut(out);
  const Error& error = written.status.error();
  if (error.code == ErrorCode::kTooLarge && cut->order.base.value != 0)
    CutInFull(error.message);
  else
    FailCut(error.code, error.message, now, out);
}

void Scheduler::Impl::CompleteCut(Outbox* out) {
  Cut& cut = *checkpoints_.pending();
  Manifest& manifest = cut.manifest;
  if (!cut.hash_only()) {
    Say(fmt::format("checkpoint {} ({}{}) is whole: {}", cut.order.id.value, Name(cut.reason),
                    cut.order.base.value == 0 ? "" : fmt::format(", changes since {}", cut.order.base.value),
                    cut.order.directory));
    SendAnswers(checkpoint_requests_.Ended(cut.order.id, ErrorCode::kOk, cut.order.directory), out);
  }
  state_is_cut_ = cut.at_boundary;
  if (cut.reason == CutReason::kBest) best_lost_ = false;
  if (!cut.hash_only()) {
    whole_ = cut.order.id;
    whole_directory_ = cut.order.directory;
    whole_files_ = FilesHash(manifest);
    if (durable()) membership_.SetWhole(whole_);
  }
  RemoveCheckpoints(checkpoints_.Complete(std::move(manifest.generations)));
  EndCut();
}

void Scheduler::Impl::EndCut() {
  leases_.Release();
  membership_.SetOrder({});
}

void Scheduler::Impl::AbandonCut() {
  const CheckpointId id = checkpoints_.pending()->order.id;
  const std::string directory = checkpoints_.Abandon();
  EndCut();
  if (!directory.empty()) abandoned_.push_back({id, directory, membership_.view().version});
}

void Scheduler::Impl::RemoveAbandoned() {
  std::erase_if(abandoned_, [&](const Abandoned& gone) {
    if (membership_.shards().MayWrite(gone.id, gone.since)) return false;
    store_->RemoveCheckpoint(gone.directory);
    return true;
  });
}

// The base is gone, or a file of it; or the chain is too long for a manifest.
void Scheduler::Impl::CutInFull(const std::string& reason) {
  const Cut& cut = *checkpoints_.pending();
  const CutReason why = cut.reason;
  Warn(fmt::format("checkpoint {} ({}) cannot hold only what changed since {}, a full one follows: {}",
                   cut.order.id.value, Name(why), cut.order.base.value, reason));
  checkpoint_requests_.Voided(cut.order.id);
  AbandonCut();
  checkpoints_.ForgetBase();
  WantCut(why);
}

// The run does without it: another periodic or requested one follows in time, and what a best one would have held is
// in the parameters that are trained on. The last word of the run it does not do without.
void Scheduler::Impl::FailCut(ErrorCode code, const std::string& reason, TimeUs now, Outbox* out) {
  const Cut& cut = *checkpoints_.pending();
  const CutReason why = cut.reason;
  const std::string text = fmt::format("checkpoint {} ({}) could not be written to {}: {}", cut.order.id.value,
                                       Name(why), cut.order.directory, reason);
  SendAnswers(checkpoint_requests_.Ended(cut.order.id, code, text), out);
  checkpoints_.NotWritten(now);
  AbandonCut();
  Warn(text);
  if (why < CutReason::kBest) return;
  if (why > CutReason::kBest) return Fail(code, text, now, out);
  if (++best_failures_ < kBestTriesMax)
    best_again_ = now + kBestPauseUs;
  else
    LoseBest();
}

// Training goes on; what was promised is the result of all epochs, and that the best of them is kept where it can be.
void Scheduler::Impl::LoseBest() {
  best_lost_ = true;
  const std::uint32_t epoch = EpochNumber(schedule_.finished().back().epoch);
  Warn(fmt::format("epoch {} was the best so far, and its checkpoint could not be written in {} tries: {}", epoch,
                   kBestTriesMax,
                   checkpoints_.best().empty() ? std::string("no checkpoint of a best epoch is kept")
                                               : "the best that is kept is an earlier one, " + checkpoints_.best()));
}

// A worker that ended beyond the clock of the cut without having said where it stood at it.
void Scheduler::Impl::VoidCut(const Verdict& verdict) {
  const Cut* cut = checkpoints_.pending();
  if (cut == nullptr || cut->writes_manifest || !cut->order.at_clock || cut->workers.contains(verdict.worker)) return;
  if (verdict.join >= cut->order.clock || verdict.end <= cut->order.clock) return;
  const CutReason reason = cut->reason;
  checkpoint_requests_.Voided(cut->order.id);
  Warn(fmt::format("checkpoint {} ({}) is void: worker {} died beyond its clock", cut->order.id.value, Name(reason),
                   verdict.rank.value));
  AbandonCut();
  if (reason != CutReason::kPeriodic)
    WantCut(reason);
  else if (checkpoint_requests_.Unordered())
    WantCut(CutReason::kRequested);
}

}  // namespace tarn::scheduler
