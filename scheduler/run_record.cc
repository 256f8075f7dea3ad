#include "scheduler/run_record.h"

#include <algorithm>
#include <utility>

#include "core/hash.h"

namespace tarn::scheduler {

RunRecord::RunRecord(Options options, const Context& context)
    : options_(std::move(options)), context_(context), batches_repeated_(options_.batches_repeated) {}

void RunRecord::OnVerdict(const Verdict& verdict) {
  totals_.End(verdict.worker);
  batches_repeated_ += verdict.repeated;
}

std::uint64_t RunRecord::Samples() const {
  return context_.leases->Samples(context_.membership->workers().LivePositions());
}

Manifest RunRecord::Make(const Positions& at, bool trust_done, TimeUs now) const {
  const Leases& leases = *context_.leases;
  Manifest manifest;
  manifest.job_text = options_.job_text;
  manifest.fingerprint = options_.fingerprint;
  manifest.partition_bits = context_.membership->view().routes.partition_bits;
  manifest.data = leases.Snapshot(at, trust_done);
  manifest.epochs = context_.epochs->schedule().finished();
  manifest.samples = leases.epoch() * leases.data().rows(LeasePurpose::kTrain);
  for (std::uint64_t rows : manifest.data.trained) manifest.samples += rows;
  manifest.batches_repeated = batches_repeated_;
  manifest.seconds = context_.epochs->train_time().TotalSeconds(now);
  manifest.train_seconds = context_.epochs->train_time().TrainSeconds(now);
  manifest.best_lost = context_.epochs->best().missing();
  return manifest;
}

SchedulerState RunRecord::MakeState(TimeUs now) const {
  const Membership& membership = *context_.membership;
  SchedulerState state;
  state.run = options_.run;
  state.progress = Make({}, true, now);
  state.progress.data = context_.leases->Capture(&state.leases, &state.last_lease);
  state.progress.tables = membership.view().tables;
  state.progress.next_incarnation = membership.next_incarnation();
  state.progress.workers_died = workers_died();
  membership.Capture(&state);
  state.progress.resume_clock = state.largest_end;
  state.best_wanted = context_.epochs->best_wanted();
  state.programs_keep_state = membership.workers().programs_keep_state();
  return state;
}

std::uint64_t RunRecord::StateRevision(const CheckpointCoordinator& cuts) const {
  const Membership& membership = *context_.membership;
  const Epochs& epochs = *context_.epochs;
  std::uint64_t hash = HashCombine(membership.view().version.value, context_.leases->revision());
  auto add = [&hash](auto... words) { ((hash = HashCombine(hash, words)), ...); };
  add(membership.next_incarnation().value, cuts.checkpoints().last().value, cuts.whole().id.value,
      epochs.schedule().finished().size(),
      std::uint64_t{membership.workers().programs_keep_state()} << 3 | std::uint64_t{epochs.best().wanted()} << 2 |
          std::uint64_t{epochs.phase() == Phase::kBestCheckpoint} << 1 | std::uint64_t{membership.begun()},
      batches_repeated_);
  return hash;
}

Progress RunRecord::MakeProgress(TimeUs now) const {
  const Membership& membership = *context_.membership;
  const Leases& leases = *context_.leases;
  const Epochs& epochs = *context_.epochs;
  Progress out;
  out.phase = Name(epochs.phase());
  out.epoch = leases.epoch();
  out.samples = Samples();
  out.samples_here = out.samples - std::min(out.samples, options_.earlier_samples);
  out.samples_total = leases.data().rows(LeasePurpose::kTrain) * options_.epochs;
  out.seconds = epochs.train_time().TotalSeconds(now);
  out.train_seconds = epochs.train_time().TrainSeconds(now);
  out.train = leases.train().quality();
  out.epochs = epochs.schedule().finished();
  out.staleness = totals_.Staleness();
  out.delay = totals_.Delay();
  out.counters = totals_.Counters();
  out.shard_counters = totals_.ShardCounters();
  AddWorkers(&out);
  out.workers_waiting = membership.workers().waiting();
  out.shards_joined = membership.shards().joined();
  out.workers_died = workers_died();
  out.batches_repeated = batches_repeated_;
  for (const auto set : {LeasePurpose::kTrain, LeasePurpose::kValidate, LeasePurpose::kTest})
    out.rows[static_cast<std::size_t>(set)] = leases.data().rows(set);
  out.min_clock = membership.shards().MinClock();
  out.max_clock = membership.MaxClock();
  out.best_lost = epochs.best().missing();
  return out;
}

void RunRecord::AddWorkers(Progress* out) const {
  for (const WorkerNode* worker : context_.membership->workers().Live()) {
    WorkerProgress& entry = out->workers.emplace_back();
    entry.rank = worker->rank;
    entry.incarnation = worker->incarnation;
    entry.clock = worker->clock;
    entry.acked_clock = worker->acked_clock;
    totals_.Fill(&entry);
  }
  out->workers_live = static_cast<std::uint32_t>(out->workers.size());
}

std::uint64_t RunRecord::AddTo(std::uint64_t hash) const {
  const Membership& membership = *context_.membership;
  const Leases& leases = *context_.leases;
  auto add = [&hash](auto... words) { ((hash = HashCombine(hash, words)), ...); };
  add(membership.view().version.value);
  for (const WorkerEntry& entry : membership.view().workers)
    add(entry.incarnation.value, static_cast<std::uint64_t>(entry.state), entry.join.value, entry.end.value);
  for (const ShardNode& shard : membership.shards().all()) add(shard.confirmed.value, shard.min_clock.value);
  for (const auto& [id, worker] : membership.workers().all())
    add(id.value, worker.acked_clock.value, worker.position.lease.value, worker.position.rows);
  add(leases.epoch(), leases.ceiling().value);
  for (std::uint64_t rows : leases.Snapshot({}, true).trained) add(rows);
  return hash;
}

}  // namespace tarn::scheduler
