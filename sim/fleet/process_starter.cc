#include "sim/fleet/process_starter.h"

#include <fmt/format.h>

#include <utility>

#include "sim/fleet/checkpoint_checks.h"

namespace tarn::sim {
namespace {

constexpr TimeUs kResendUs = 200'000;
// Maximum duration of operations of a shard's disk, normally and in rare cases.
constexpr TimeUs kFastTierUs = 3'000, kSlowTierUs = 3'000'000;
constexpr double kFailAddresses = 0.2;

}  // namespace

SimSchedulerStore MakeSchedulerStore(FleetContext& context) {
  const Faults& f = context.scenario.faults;
  SimSchedulerStore::Hooks hooks;
  hooks.now = [&context] { return context.now(); };
  hooks.later = [&context](TimeUs delay, std::function<void()> run) {
    context.events.At(context.now() + delay, [&context, id = context.processes.scheduler_id(), run = std::move(run)] {
      if (context.processes.contains(id)) run();
    });
  };
  hooks.written = [&context](const scheduler::StoreWritten& written) {
    context.control.Step(context.processes.scheduler_id(), [&context, written](Process& process, Outbox* out) {
      process.scheduler->OnWritten(written, context.clocks.NowOf(process), out);
    });
  };
  hooks.whole = [&context](const auto& directory, const auto& manifest) {
    const ResumePoint point{manifest, directory};
    CheckCheckpoint(context.scenario, context.disk, point, &context.oracle);
    CheckBlobs(context, point);
    CheckProgramStates(context, point);
  };
  return {{.fail_manifest = f.fail_manifest,
           .slow_manifest = f.slow_store,
           .fail_state = f.fail_state,
           .fail_addresses = kFailAddresses,
           .stall = f.stall_state,
           .sync_max_us = f.sync_max_us,
           .stall_us = 2 * context.lease_us(),
           .until_us = f.until_us,
           .seed = context.scenario.draw},
          &context.disk,
          &context.oracle,
          std::move(hooks)};
}

ProcessStarter::ProcessStarter(FleetContext& context, ShardLogs* logs, NodeFaults* faults, SimSchedulerStore* store,
                               const std::optional<ResumePoint>* resume)
    : context_(context), logs_(logs), faults_(faults), store_(store), resume_(resume) {}

std::function<void(TimeUs, std::function<void()>)> ProcessStarter::Later(ProcessId id) const {
  return [&context = context_, id](TimeUs delay, std::function<void()> run) {
    context.events.At(context.now() + delay, [&context, id, run = std::move(run)] {
      if (context.processes.contains(id)) run();
    });
  };
}

std::string ProcessStarter::HttpOf(ProcessId id) const {
  return context_.scenario.serves_http ? fmt::format("http://sim:{}", 1 + id % 65535) : "";
}

bool ProcessStarter::LoadState(scheduler::SchedulerOptions* options) {
  const std::string& state = context_.disk.state.bytes;
  if (state.empty()) return false;
  restored_ = *scheduler::DecodeState(state, "scheduler.state");
  logs_->Continue(restored_.workers);
  options->first_incarnation = restored_.progress.next_incarnation.value;
  return restored_.begun;
}

bool ProcessStarter::StartScheduler() {
  const ProcessId id = context_.processes.Add(0, 0);
  scheduler::SchedulerOptions options;
  options.job = context_.scenario.job;
  options.job_text = ToToml(context_.scenario.job);
  options.checkpoints_directory = context_.checkpoints;
  options.run = context_.scenario.draw | 1;
  options.http = HttpOf(id);
  const bool continues = LoadState(&options);
  if (continues) {
    options.restore = &restored_;
    context_.Trace(fmt::format("the run continues from its logs since checkpoint {}", restored_.whole.value));
    for (const WorkerEntry& entry : restored_.workers)
      if (entry.state == WorkerState::kLive) died_in_outages_.insert(entry.incarnation);
  } else {
    context_.oracle.cohorts().BeginAnew();
    logs_->BeginAnew();
    if (*resume_) {
      options.resume = &(*resume_)->manifest;
      options.resume_directory = (*resume_)->directory;
    }
  }
  Process& p = *context_.processes.Find(id);
  p.scheduler = std::make_unique<scheduler::Scheduler>(std::move(options), store_);
  context_.network.AddProcess(id, p.node);
  p.scheduler->Start(context_.clocks.NowOf(p));
  context_.control.ArmTimer(id, p);
  context_.processes.SetScheduler(id);
  return continues;
}

std::unique_ptr<SimShardStore> ProcessStarter::MakeStore(ProcessId id, ShardId shard) const {
  const Faults& faults = context_.scenario.faults;
  SimShardStore::Hooks hooks;
  hooks.later = Later(id);
  hooks.written = [&context = context_, id](const CheckpointPart& part) {
    context.control.Step(id, [&context, part](Process& process, Outbox* out) {
      process.shard->OnCheckpointWritten(part, context.clocks.NowOf(process), out);
    });
  };
  hooks.wake = [&context = context_, id] { context.control.Step(id, [](Process&, Outbox*) {}); };
  hooks.state_hash = [&context = context_, id] { return context.processes.Find(id)->shard->rows().StateHash(); };
  return std::make_unique<SimShardStore>(
      SimShardStore::Options{shard, faults.fail_store, faults.slow_store, faults.lose_base, faults.full_store,
                             context_.scenario.draw},
      &context_.disk, &context_.oracle, std::move(hooks));
}

std::unique_ptr<SimBlobStore> ProcessStarter::MakeBlobs(ProcessId id, ShardId shard) const {
  const Faults& faults = context_.scenario.faults;
  SimBlobStore::Hooks hooks;
  hooks.now = [&context = context_] { return context.now(); };
  hooks.later = Later(id);
  hooks.written = [&context = context_, id](const server::BlobWritten& written) {
    context.control.Step(id, [&context, written](Process& process, Outbox* out) {
      process.shard->OnBlobWritten(written, context.clocks.NowOf(process), out);
    });
  };
  return std::make_unique<SimBlobStore>(
      SimBlobStore::Options{shard, faults.fail_store, faults.slow_store, context_.scenario.draw}, &context_.disk,
      &context_.oracle, std::move(hooks));
}

std::unique_ptr<ShardChecker> ProcessStarter::MakeChecker(ProcessId id) const {
  return std::make_unique<ShardChecker>(&context_.oracle, [&context = context_, id](TableId table) {
    const scheduler::Scheduler* scheduler = context.processes.scheduler();
    const View& view = scheduler != nullptr ? scheduler->view() : context.processes.Find(id)->shard->view();
    for (const TableSpec& spec : view.tables)
      if (spec.id == table) return context.scenario.Of(spec.name);
    return ConsistencySpec();
  });
}

server::ShardOptions ProcessStarter::ShardOptionsOf(ProcessId id, std::uint32_t index) const {
  const Scenario& scenario = context_.scenario;
  server::ShardOptions options;
  options.shard = ShardId(index);
  options.shards_per_server = scenario.job.fleet.shards;
  options.held_lists_bytes_max = scenario.held_lists_bytes_max;
  options.held_lists_peer_bytes_max = 2 * scenario.held_keys_bytes;
  if (scenario.parked_pulls_max != 0) options.parked_pulls_max = scenario.parked_pulls_max;
  if (scenario.bucket_bytes_max != 0) options.bucket_bytes_max = scenario.bucket_bytes_max;
  if (scenario.tier_bytes != 0) options.make_tier = [this, id](const Job&) { return MakeTier(id); };
  if (scenario.waiting_messages_max != 0) options.waiting_messages_max = scenario.waiting_messages_max;
  if (scenario.waiting_bytes_max != 0) options.waiting_bytes_max = scenario.waiting_bytes_max;
  options.nonce = context_.dice.main.Next() | 1;
  // Every second shard sends each answer with rows within its step.
  options.flush = [&context = context_] { context.flush(); };
  options.flush_bytes = index % 2 == 0 ? 1 : server::ShardStep::kFlushBytes;
  options.endpoint = fmt::format("sim://shard-{}", index);
  options.http = HttpOf(id);
  // Small slices, so that cuts take many steps with messages between them.
  options.cut_slice_bytes = scenario.cut_slice_bytes;
  options.cut_pause_us = scenario.cut_pause_us;
  options.unix_us = [at_zero = context_.clocks.UnixUsAtZero(index)](TimeUs now) { return at_zero + now; };
  return options;
}

ProcessId ProcessStarter::StartShard(std::uint32_t index) {
  const ProcessId id = context_.processes.Add(1 + index, index);
  Process& p = *context_.processes.Find(id);
  context_.network.AddProcess(id, p.node);
  context_.network.Connect(id, kSchedulerPeer, context_.processes.scheduler_id());
  p.checker = MakeChecker(id);
  p.store = MakeStore(id, ShardId(index));
  p.blobs = MakeBlobs(id, ShardId(index));
  server::ShardOptions options = ShardOptionsOf(id, index);
  p.log = logs_->Make(id, index);
  options.log = p.log.get();
  options.blobs = p.blobs.get();
  p.shard = std::make_unique<server::Shard>(options, p.store.get(), p.checker.get());
  context_.oracle.origins().OnShardStarts();
  const bool immediate =
      context_.scenario.counts.apply == ApplyMode::kImmediate && context_.scenario.layer.apply == ApplyMode::kImmediate;
  if (immediate)
    p.checker->SetVersions([shard = p.shard.get()](PartitionId partition) -> std::optional<std::uint64_t> {
      if (!shard->joined()) return std::nullopt;
      std::uint64_t sum = 0;
      for (const TableSpec& table : shard->view().tables)
        sum += shard->rows().Find(partition)->VersionOf(table.id).value;
      return sum;
    });
  context_.control.Step(
      id, [this](Process& process, Outbox* out) { process.shard->Start(context_.clocks.NowOf(process), out); });
  return id;
}

// A tier whose disk operations end later, in order.
server::Tier ProcessStarter::MakeTier(ProcessId id) const {
  auto store = std::make_unique<server::MemoryColdStore>([&context = context_, id] {
    SplitMix& dice = context.dice.tier;
    const bool slow = dice.Chance(context.scenario.faults.slow_tier) && context.now() < context.until_us();
    const TimeUs most = slow ? kSlowTierUs : kFastTierUs;
    context.events.At(context.now() + 1 + TimeUs(dice.Below(std::uint64_t(most))), [&context, id] {
      context.control.Step(id, [&context](Process& process, Outbox* out) {
        process.cold->RunOne();
        process.shard->OnTier(context.clocks.NowOf(process), out);
      });
    });
  });
  context_.processes.Find(id)->cold = store.get();
  faults_->PlanTierFaults(id);
  return {.store = std::move(store), .limit_bytes = context_.scenario.tier_bytes};
}

worker::ClientOptions ProcessStarter::ClientOptionsOf(std::uint32_t rank) const {
  SplitMix& dice = context_.dice.main;
  worker::ClientOptions options;
  options.rank = context_.scenario.any_rank ? kAnyRank : rank;
  options.nonce = dice.Next() | 1;
  options.resend_us = kResendUs;
  options.held_keys_min = 2;
  options.held_keys_bytes = context_.scenario.held_keys_bytes;
  options.piece_bytes = 64 + dice.Below(4096);
  options.blob_chunk_bytes = 100 + options.piece_bytes / 4;
  options.credit_bytes = 256 + dice.Below(65536);
  return options;
}

ProcessId ProcessStarter::StartWorker(std::uint32_t rank) {
  const ProcessId id = context_.processes.Add(1 + context_.scenario.shards + rank, rank);
  Process& p = *context_.processes.Find(id);
  context_.network.AddProcess(id, p.node);
  context_.network.Connect(id, kSchedulerPeer, context_.processes.scheduler_id());
  const auto compute = [&context = context_, id](TimeUs delay) {
    context.events.At(context.now() + delay, [&context, id] {
      context.control.Step(id, [&context](Process& process, Outbox* out) {
        process.worker->OnCompute(context.clocks.NowOf(process), out);
      });
    });
  };
  worker::ClientOptions options = ClientOptionsOf(rank);
  options.http = HttpOf(id);
  p.worker = std::make_unique<SimWorker>(context_.scenario, std::move(options), &context_.oracle, compute);
  context_.control.Step(
      id, [this](Process& process, Outbox* out) { process.worker->Start(context_.clocks.NowOf(process), out); });
  return id;
}

}  // namespace tarn::sim
