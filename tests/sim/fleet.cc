#include "tests/sim/fleet.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/position.h"
#include "server/row_store.h"

namespace tarn::sim {
namespace {

// Simulated time that a run may take after the last fault before it counts as stuck.
constexpr TimeUs kSettleUs = 600'000'000;
constexpr TimeUs kResendUs = 200'000;

}  // namespace

struct Fleet::Process {
  NodeId node = 0;
  std::unique_ptr<scheduler::Scheduler> scheduler;
  std::unique_ptr<server::MemoryCheckpointStore> store;
  std::unique_ptr<ShardChecker> checker;
  std::unique_ptr<server::Shard> shard;
  std::unique_ptr<SimWorker> worker;
  std::uint32_t rank = 0;
  TimeUs paused_until = 0;
  TimeUs timer_at = -1;
  std::uint64_t timer_version = 0;
  Clock last_clock;
  bool over = false;
};

Status MemorySchedulerStore::WriteManifest(const std::string& directory, const Manifest& manifest) {
  manifests[directory] = manifest;
  return {};
}

void MemorySchedulerStore::RemoveCheckpoint(const std::string& directory) { manifests.erase(directory); }

Fleet::Fleet(const Scenario& scenario, bool verbose)
    : scenario_(scenario),
      verbose_(verbose),
      rng_(Mix64(scenario.seed ^ 0x666c74)),
      oracle_(scenario_),
      network_(&events_, scenario_.faults, scenario_.seed, scenario_.through_frames,
               [this](ProcessId to, Peer from, Message message) { Deliver(to, from, std::move(message)); }) {}

Fleet::~Fleet() = default;

void Fleet::Trace(const std::string& what) {
  if (verbose_) std::fprintf(stderr, "%10.6f  %s\n", double(events_.now()) * 1e-6, what.c_str());
}

ProcessId Fleet::StartScheduler() {
  const ProcessId id = next_process_++;
  auto& p = processes_[id] = std::make_unique<Process>();
  p->node = 0;
  scheduler::SchedulerOptions options;
  options.job = scenario_.job;
  options.job_text = ToToml(scenario_.job);
  options.checkpoints_directory = "checkpoints";
  p->scheduler = std::make_unique<scheduler::Scheduler>(std::move(options), &scheduler_store_);
  network_.AddProcess(id, p->node);
  p->scheduler->Start(events_.now());
  ArmTimer(id, *p);
  return id;
}

ProcessId Fleet::StartShard(std::uint32_t index) {
  const ProcessId id = next_process_++;
  auto& p = processes_[id] = std::make_unique<Process>();
  p->node = 1 + index;
  p->rank = index;
  network_.AddProcess(id, p->node);
  network_.Connect(id, kSchedulerPeer, scheduler_id_);
  p->checker = std::make_unique<ShardChecker>(scenario_, &oracle_, [this](Clock use) { CheckGroundTruth(use); });
  p->store = std::make_unique<server::MemoryCheckpointStore>(
      &checkpoint_files_, ShardId(index), [this, id](CheckpointPart part) {
        events_.At(events_.now() + 1'000 + TimeUs(rng_.Below(50'000)), [this, id, part] {
          Step(id, [this, part](Process& process, Outbox* out) {
            process.shard->OnCheckpointWritten(part, events_.now(), out);
          });
        });
      });
  server::ShardOptions options;
  options.shard = ShardId(index);
  options.nonce = rng_.Next() | 1;
  options.endpoint = fmt::format("sim://shard-{}", index);
  // Cuts take many steps, with messages between them.
  options.cut_slice_bytes = scenario_.cut_slice_bytes;
  options.cut_pause_us = scenario_.cut_pause_us;
  p->shard = std::make_unique<server::Shard>(options, p->store.get(), p->checker.get());
  Step(id, [this](Process& process, Outbox* out) { process.shard->Start(events_.now(), out); });
  return id;
}

ProcessId Fleet::StartWorker(std::uint32_t rank) {
  const ProcessId id = next_process_++;
  auto& p = processes_[id] = std::make_unique<Process>();
  p->node = 1 + scenario_.shards + rank;
  p->rank = rank;
  network_.AddProcess(id, p->node);
  network_.Connect(id, kSchedulerPeer, scheduler_id_);
  worker::ClientOptions options;
  options.rank = rank;
  options.nonce = rng_.Next() | 1;
  options.resend_us = kResendUs;
  options.piece_bytes = 64 + rng_.Below(4096);
  options.credit_bytes = 256 + rng_.Below(65536);
  p->worker = std::make_unique<SimWorker>(scenario_, options, &oracle_, [this, id](TimeUs delay) {
    events_.At(events_.now() + delay, [this, id] {
      Step(id, [this](Process& process, Outbox* out) { process.worker->OnCompute(events_.now(), out); });
    });
  });
  Step(id, [this](Process& process, Outbox* out) { process.worker->Start(events_.now(), out); });
  return id;
}

void Fleet::Deliver(ProcessId to, Peer from, Message message) {
  auto it = processes_.find(to);
  if (it == processes_.end()) return;
  if (verbose_) Trace(fmt::format("{} <- {:x} {}", it->second->node, from.value, BodyName(message.body)));
  Step(to, [this, from, message = std::move(message)](Process& p, Outbox* out) {
    if (p.scheduler) p.scheduler->OnMessage(from, message, events_.now(), out);
    if (p.shard) p.shard->OnMessage(from, message, events_.now(), out);
    if (p.worker) p.worker->OnMessage(from, message, events_.now(), out);
  });
}

// Runs one step of a process, or puts it off while the process is paused.
void Fleet::Step(ProcessId id, std::function<void(Process&, Outbox*)> step) {
  auto it = processes_.find(id);
  if (it == processes_.end() || it->second->over) return;
  Process& process = *it->second;
  if (events_.now() < process.paused_until) {  // what comes during a pause waits, in order
    events_.At(process.paused_until, [this, id, step = std::move(step)] { Step(id, step); });
    return;
  }
  Outbox out;
  step(process, &out);
  for (Outgoing& o : out) network_.Send(id, o.to, o.message);
  AfterStep(id, process);
}

void Fleet::AfterStep(ProcessId id, Process& p) {
  if (p.scheduler) {
    oracle_.OnView(p.scheduler->view());
  } else if (p.shard) {
    if (p.shard->minimum_clock() < p.last_clock) oracle_.Fail("a shard's minimum clock went back");
    p.last_clock = p.shard->minimum_clock();
    if (p.shard->stopped()) p.over = true;
  } else if (p.worker) {
    const worker::Client& client = p.worker->client();
    if (client.clock() < p.last_clock) oracle_.Fail("a worker's clock went back");
    p.last_clock = client.clock();
    ConnectToShards(id, p);
    if (client.state() == worker::ClientState::kStopped) p.over = true;
    if (client.state() == worker::ClientState::kFenced) {
      ++fenced_;
      const std::uint32_t rank = p.rank;
      oracle_.OnWorkerGone(client.welcome().incarnation);
      p.over = true;
      Trace(fmt::format("worker {} found itself fenced", rank));
      events_.At(events_.now() + 50'000, [this, id, rank] {
        network_.RemoveProcess(id);
        processes_.erase(id);
        worker_of_rank_[rank] = StartWorker(rank);
      });
    }
  }
  if (!p.over) ArmTimer(id, p);
}

void Fleet::ConnectToShards(ProcessId id, Process& p) {
  if (p.worker->client().view().version.value == 0) return;
  for (std::uint32_t i = 0; i < scenario_.shards; ++i)
    if (!network_.Connected(id, ShardPeer(ShardId(i)))) network_.Connect(id, ShardPeer(ShardId(i)), shard_ids_[i]);
}

void Fleet::ArmTimer(ProcessId id, Process& p) {
  const TimeUs at = p.scheduler ? p.scheduler->NextTimer()
                    : p.shard   ? p.shard->NextTimer()
                                : p.worker->client().NextTimer();
  if (at == p.timer_at) return;
  p.timer_at = at;
  const std::uint64_t version = ++p.timer_version;
  events_.At(std::max(at, events_.now() + 1), [this, id, version] {
    auto it = processes_.find(id);
    if (it == processes_.end() || it->second->timer_version != version) return;
    it->second->timer_at = -1;
    Step(id, [this](Process& process, Outbox* out) {
      if (process.scheduler) process.scheduler->OnTimer(events_.now(), out);
      if (process.shard) process.shard->OnTimer(events_.now(), out);
      if (process.worker) process.worker->OnTimer(events_.now(), out);
    });
  });
}

void Fleet::CrashWorker(std::uint32_t rank) {
  const ProcessId id = worker_of_rank_[rank];
  auto it = processes_.find(id);
  if (it == processes_.end() || it->second->over) return;
  ++crashes_;
  Trace(fmt::format("worker {} crashes: {}", rank, it->second->worker->Describe()));
  oracle_.OnWorkerGone(it->second->worker->client().welcome().incarnation);
  network_.RemoveProcess(id);
  processes_.erase(it);
  // Comes back at once, or late enough to be found dead first.
  const TimeUs back = rng_.Chance(0.7) ? TimeUs(rng_.Below(500'000)) : TimeUs(rng_.Below(9'000'000));
  events_.At(events_.now() + back, [this, rank] { worker_of_rank_[rank] = StartWorker(rank); });
}

void Fleet::PlanFaults() {
  const Faults& f = scenario_.faults;
  const auto sometime = [&] { return 100'000 + TimeUs(rng_.Below(std::uint64_t(f.until_us))); };
  const std::uint32_t nodes = 1 + scenario_.shards + scenario_.workers;
  for (std::uint32_t i = 0; i < f.reconnects; ++i) events_.At(sometime(), [this] { network_.ReconnectOne(); });
  for (std::uint32_t i = 0; i < f.partitions; ++i) {
    // Half of the cuts are on the scheduler's links, where views and verdicts travel. Links of shards stay cut for less
    // than the lease: a dead shard ends the job. A worker may be given up while it goes on talking to the shards.
    const NodeId a = rng_.Chance(0.5) ? 0 : NodeId(rng_.Below(nodes));
    const NodeId b = NodeId(rng_.Below(nodes));
    const bool both = rng_.Chance(0.6), ring = rng_.Chance(0.2);
    const bool may_be_long = !ring && (a > scenario_.shards || b > scenario_.shards);
    const TimeUs length = 100'000 + TimeUs(rng_.Below(may_be_long && rng_.Chance(0.5) ? 8'000'000 : 1'000'000));
    events_.At(sometime(), [this, a, b, both, ring, length, nodes] {
      if (!ring) return network_.Cut(a, b, both, events_.now() + length);
      for (NodeId other = 0; other < nodes; ++other)
        if (other != a) network_.Cut(a, other, both, events_.now() + length);
    });
  }
  for (std::uint32_t i = 0; i < f.pauses; ++i) {
    const NodeId node = NodeId(rng_.Below(nodes));
    const bool worker = node > scenario_.shards;
    // A worker may sleep past its lease; it must find itself fenced when it wakes.
    const TimeUs length = 50'000 + TimeUs(rng_.Below(worker ? 8'000'000 : 1'000'000));
    events_.At(sometime(), [this, node, length] {
      for (auto& [id, p] : processes_)
        if (p->node == node && !p->over) {
          p->paused_until = events_.now() + length;
          ++other_faults_;
        }
    });
  }
  for (std::uint32_t i = 0; i < f.crashes; ++i) {
    const std::uint32_t rank = std::uint32_t(rng_.Below(scenario_.workers));
    events_.At(sometime(), [this, rank] { CrashWorker(rank); });
  }
  events_.At(f.until_us, [this] { network_.Heal(); });
}

void Fleet::CheckGroundTruth(Clock use) const {
  const ConsistencySpec& spec = scenario_.job.consistency;
  const std::uint64_t bound = spec.mode == ConsistencyMode::kSsp ? spec.staleness : 0;
  for (const WorkerEntry& entry : processes_.at(scheduler_id_)->scheduler->view().workers) {
    if (entry.state != WorkerState::kLive || entry.join.value + bound >= use.value) continue;
    for (const auto& [id, p] : processes_) {
      if (!p->worker || p->over || p->worker->client().welcome().incarnation != entry.incarnation) continue;
      if (p->worker->client().clock().value + bound < use.value)
        const_cast<Oracle&>(oracle_).Fail(fmt::format("a pull of clock {} was served while worker {} is at {}",
                                                      use.value, entry.rank.value, p->worker->client().clock().value));
    }
  }
}

float Fleet::FinalValue(Key key) {
  const View& view = processes_.at(scheduler_id_)->scheduler->view();
  for (const TableSpec& spec : view.tables) {
    if (spec.name != "counts") continue;
    const Position position = Positioner(spec, TableSalt(scenario_.job.job.seed, spec.name))(key);
    const ShardId owner = view.routes.OwnerOf(PartitionOf(position, view.routes.partition_bits));
    return processes_.at(shard_ids_[owner.value])->shard->rows().Values(spec.id, key)[0];
  }
  return 0;
}

void Fleet::CheckEnd() {
  for (Key key : oracle_.Keys()) oracle_.CheckFinalValue(key, FinalValue(key));
  oracle_.CheckData();
}

std::uint64_t Fleet::StateHash() const {
  std::uint64_t hash = HashCombine(scenario_.seed, events_.executed());
  for (const auto& [id, p] : processes_) {
    hash = HashCombine(hash, id);
    if (p->scheduler) hash = HashCombine(hash, p->scheduler->StateHash());
    if (p->shard) hash = HashCombine(hash, p->shard->StateHash());
    if (p->worker) hash = HashCombine(hash, p->worker->client().StateHash());
  }
  return hash;
}

std::string Fleet::DescribeAll() const {
  std::string text;
  for (const auto& [id, p] : processes_) {
    if (p->scheduler) text += fmt::format("\n  scheduler: {}", p->scheduler->progress().phase);
    if (p->shard) text += fmt::format("\n  shard {}: minimum clock {}", p->rank, p->shard->minimum_clock().value);
    if (p->worker) text += fmt::format("\n  worker {}: {}", p->rank, p->worker->Describe());
  }
  return text;
}

RunResult Fleet::Run() {
  scheduler_id_ = StartScheduler();
  for (std::uint32_t i = 0; i < scenario_.shards; ++i) shard_ids_.push_back(StartShard(i));
  for (std::uint32_t i = 0; i < scenario_.workers; ++i) worker_of_rank_.push_back(StartWorker(i));
  PlanFaults();
  scheduler::Scheduler& scheduler = *processes_.at(scheduler_id_)->scheduler;
  const TimeUs limit = scenario_.faults.until_us + kSettleUs;
  while (!scheduler.stopped() && !oracle_.failed()) {
    if (!events_.RunOne() || events_.now() > limit) {
      oracle_.Fail("the run did not finish after faults had stopped:" + DescribeAll());
      break;
    }
  }
  if (!oracle_.failed() && scheduler.stop_reason().code != ErrorCode::kOk)
    oracle_.Fail("the job failed: " + scheduler.stop_reason().reason);
  if (!oracle_.failed()) CheckEnd();

  RunResult result;
  result.seed = scenario_.seed;
  result.failure = oracle_.failure();
  result.state_hash = StateHash();
  result.acked_push_ids = oracle_.acked_push_ids();
  result.faults_fired = network_.counters().faults() + other_faults_ + crashes_;
  result.messages = network_.counters().delivered;
  result.events = events_.executed();
  result.crashes = crashes_;
  result.fenced = fenced_;
  result.workers_died = scheduler.progress().workers_died;
  result.simulated_us = events_.now();
  for (ProcessId id : shard_ids_) result.parameters_hash += processes_.at(id)->shard->rows().StateHash();
  return result;
}

namespace {

// The same job without a fault and on another number of shards.
Scenario Twin(const Scenario& scenario) {
  Scenario twin = scenario;
  twin.faults = {};
  twin.faults.until_us = 1'000;
  twin.job.fleet.servers = scenario.job.fleet.servers % 3 + 1;
  twin.job.fleet.shards = 3 - scenario.job.fleet.shards;
  twin.shards = twin.job.fleet.servers * twin.job.fleet.shards;
  return twin;
}

bool BitsAreFixed(const Scenario& scenario, const RunResult& result) {
  const ConsistencySpec& spec = scenario.job.consistency;
  return spec.mode == ConsistencyMode::kBsp && spec.apply == ApplyMode::kAggregated && result.workers_died == 0;
}

}  // namespace

RunResult RunSeed(std::uint64_t seed, bool verbose) {
  const Scenario scenario = MakeScenario(seed);
  if (verbose) std::fprintf(stderr, "seed %lu: %s\n", static_cast<unsigned long>(seed), scenario.Describe().c_str());
  RunResult result = Fleet(scenario, verbose).Run();
  if (result.failure.empty() && BitsAreFixed(scenario, result)) {
    const RunResult twin = Fleet(Twin(scenario), false).Run();
    if (!twin.failure.empty()) result.failure = "without faults: " + twin.failure;
    if (twin.parameters_hash != result.parameters_hash)
      result.failure = "bsp + aggregated: faults and another number of shards changed the bits of the parameters";
  }
  return result;
}

}  // namespace tarn::sim
