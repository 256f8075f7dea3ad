#include "sim/fleet_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/position.h"
#include "server/exhaustion.h"
#include "server/store/store.h"

namespace tarn::sim {
namespace {

// Simulated time that a run may take after the last fault before it counts as stuck.
constexpr TimeUs kSettleUs = 600'000'000;
// What a worker finds in a payload that it has kept: transports may only lend them.
constexpr int kSpoilt = 0xdb;
constexpr TimeUs kResendUs = 200'000;
// The time of day when a run begins, and one that goes on from a checkpoint of it.
constexpr TimeUs kUnixUs = 1'700'000'000'000'000, kLaterUnixUs = kUnixUs + 1'000'000'000'000;
// What takes longest of a shard's disk, and now and then.
constexpr std::uint64_t kTurnUs = 300;  // in which a loop receives messages together, at most
constexpr TimeUs kFastTierUs = 3'000, kSlowTierUs = 3'000'000;

constexpr TimeUs kHeartbeatUs = 200'000;

Message LoadingOf(const Message& message) {
  const Welcome& welcome = std::get<Welcome>(message.body);
  Message out;
  out.job = message.job;
  out.sender = {Role::kShard, welcome.rank, welcome.incarnation};
  out.body = Heartbeat{};
  return out;
}

// The oracle table as a checkpoint has it.
std::map<Key, float> ValuesIn(const SimDisk& disk, const ResumePoint& point) {
  std::map<Key, float> values;
  const auto* generations = disk.files.Find(point.directory);
  const auto restored = Restore(disk, point.directory, point.manifest);
  if (generations == nullptr || !restored) return values;
  const TableSpec* counts = (*restored)->FindTable("counts");
  if (counts == nullptr) return values;
  for (const auto& [id, parts] : *generations)
    for (const auto& [shard, snapshot] : parts)
      for (const server::TableRows& table : snapshot->tables)
        for (const server::PartitionRows& partition : table.partitions)
          if (table.spec.name == "counts")
            for (const Key key : partition.keys) values[key] = (*restored)->Values(counts->id, key)[0];
  return values;
}

}  // namespace

Fleet::Fleet(const Scenario& scenario, SimDisk* disk, const ResumePoint* resume, bool verbose)
    : scenario_(scenario),
      verbose_(verbose),
      disk_(disk),
      resume_(resume != nullptr ? std::optional(*resume) : std::nullopt),
      rng_(Mix64(scenario.draw ^ 0x666c74)),
      tier_rng_(Mix64(scenario.draw ^ 0x636f6c64)),
      outage_rng_(Mix64(scenario.draw ^ 0x6f757467)),
      time_rng_(Mix64(scenario.draw ^ 0x74696d65)),
      turn_rng_(Mix64(scenario.draw ^ 0x7475726e)),
      death_rng_(Mix64(scenario.draw ^ 0x6469656d)),
      oracle_(scenario_),
      network_(&events_, scenario_.faults, scenario_.draw, scenario_.through_frames,
               [this](ProcessId to, Peer from, Message message) { Deliver(to, from, std::move(message)); }),
      scheduler_store_(MakeSchedulerStore()),
      jumps_awaited_(scenario_.faults.outages_at_jumps) {}

Fleet::~Fleet() = default;

SimSchedulerStore Fleet::MakeSchedulerStore() {
  const Faults& f = scenario_.faults;
  const auto lease = TimeUs(scenario_.job.fleet.lease_seconds * 1e6);
  SimSchedulerStore::Hooks hooks;
  hooks.now = [this] { return events_.now(); };
  hooks.later = [this](TimeUs delay, std::function<void()> run) {
    events_.At(events_.now() + delay, [this, id = scheduler_id_, run = std::move(run)] {
      if (processes_.contains(id)) run();
    });
  };
  hooks.written = [this](const scheduler::StoreWritten& written) {
    Step(scheduler_id_, [this, written](Process& process, Outbox* out) {
      process.scheduler->OnWritten(written, NowOf(process), out);
    });
  };
  hooks.whole = [this](const auto& directory, const auto& manifest) {
    CheckCheckpoint({manifest, directory});
    CheckBlobs({manifest, directory});
  };
  return {{.fail_manifest = f.fail_manifest,
           .slow_manifest = f.slow_store,
           .fail_state = f.fail_state,
           .stall = f.stall_state,
           .sync_max_us = f.sync_max_us,
           .stall_us = 2 * lease,
           .until_us = f.until_us,
           .seed = scenario_.draw},
          disk_,
          &oracle_,
          std::move(hooks)};
}

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
  options.checkpoints_directory = resume_ ? "resumed" : "checkpoints";
  options.run = scenario_.draw | 1;
  last_sent_view_ = {};
  const std::string& state = disk_->state.bytes;
  if (!state.empty()) {
    restored_ = *scheduler::DecodeState(state, "scheduler.state");
    options.first_incarnation = restored_.progress.next_incarnation.value;
  }
  const bool goes_on = !state.empty() && restored_.begun;
  if (!goes_on) {
    oracle_.BeginAnew();
    witnesses_.clear();
  }
  if (goes_on) {
    options.restore = &restored_;
    Trace(fmt::format("goes on from its logs, from checkpoint {} on", restored_.whole.value));
    for (const WorkerEntry& entry : restored_.workers) deaths_in_outages_ += entry.state == WorkerState::kLive ? 1 : 0;
  } else if (resume_) {
    options.resume = &resume_->manifest;
    options.resume_directory = resume_->directory;
  }
  p->scheduler = std::make_unique<scheduler::Scheduler>(std::move(options), &scheduler_store_);
  network_.AddProcess(id, p->node);
  p->scheduler->Start(NowOf(*p));
  ArmTimer(id, *p);
  return id;
}

std::unique_ptr<SimShardStore> Fleet::MakeStore(ProcessId id, ShardId shard) {
  const Faults& faults = scenario_.faults;
  SimShardStore::Hooks hooks;
  hooks.later = [this, id](TimeUs delay, std::function<void()> run) {
    events_.At(events_.now() + delay, [this, id, run = std::move(run)] {
      if (processes_.contains(id)) run();
    });
  };
  hooks.written = [this, id](CheckpointPart part) {
    Step(id, [this, part](Process& process, Outbox* out) {
      process.shard->OnCheckpointWritten(part, NowOf(process), out);
    });
  };
  hooks.wake = [this, id] { Step(id, [](Process&, Outbox*) {}); };
  hooks.state_hash = [this, id] { return processes_.at(id)->shard->rows().StateHash(); };
  return std::make_unique<SimShardStore>(SimShardStore::Options{shard, faults.fail_store, faults.slow_store,
                                                                faults.lose_base, faults.full_store, scenario_.draw},
                                         disk_, &oracle_, std::move(hooks));
}

std::unique_ptr<SimBlobStore> Fleet::MakeBlobs(ProcessId id, ShardId shard) {
  const Faults& faults = scenario_.faults;
  SimBlobStore::Hooks hooks;
  hooks.now = [this] { return events_.now(); };
  hooks.later = [this, id](TimeUs delay, std::function<void()> run) {
    events_.At(events_.now() + delay, [this, id, run = std::move(run)] {
      if (processes_.contains(id)) run();
    });
  };
  hooks.written = [this, id](const server::BlobWritten& written) {
    Step(id, [this, written](Process& process, Outbox* out) {
      process.shard->OnBlobWritten(written, NowOf(process), out);
    });
  };
  return std::make_unique<SimBlobStore>(
      SimBlobStore::Options{shard, faults.fail_store, faults.slow_store, scenario_.draw}, disk_, &oracle_,
      std::move(hooks));
}

// What every worker has kept that was there before the cut is in a checkpoint, and in bsp it is that of the very clock.
void Fleet::CheckBlobs(const ResumePoint& point) {
  if (!scenario_.top_k) return;
  const Clock cut = point.manifest.resume_clock;
  const auto in_step = [](const ConsistencySpec& spec) { return spec.mode == ConsistencyMode::kBsp; };
  const bool exact = in_step(scenario_.job.consistency) && in_step(scenario_.counts) && in_step(scenario_.layer);
  for (const WorkerEntry& entry : Scheduler()->view().workers) {
    if (entry.state != WorkerState::kLive || entry.join >= cut || !scenario_.CutsAtClock()) continue;
    const auto blob = std::ranges::find(point.manifest.blobs, entry.rank, &WorkerBlob::rank);
    if (blob == point.manifest.blobs.end() || blob->incarnation != entry.incarnation)
      oracle_.Fail(fmt::format("{}: the state of worker {} is missing", point.directory, entry.rank.value));
  }
  for (const WorkerBlob& blob : point.manifest.blobs) {
    const auto stored = ReadResiduals(*disk_, point.directory, point.manifest, blob);
    if (!stored) {
      oracle_.Fail(stored.error().message);
      continue;
    }
    const auto* kept = oracle_.KeptAt(blob.incarnation, cut);
    if (exact && kept != nullptr && *kept != stored->kept)
      oracle_.Fail(fmt::format("{}: worker {} had kept {} counts at clock {}, and the checkpoint has other {}, of {}",
                               point.directory, blob.rank.value, kept->size(), cut.value, stored->kept.size(),
                               stored->clock.value));
  }
}

// What workers go on from.
void Fleet::TakeBlobs() {
  for (const WorkerBlob& blob : resume_->manifest.blobs) {
    const auto stored = ReadResiduals(*disk_, resume_->directory, resume_->manifest, blob);
    if (stored)
      oracle_.PutKept(blob.rank, stored->kept);
    else
      oracle_.Fail(stored.error().message);
  }
}

ProcessId Fleet::StartShard(std::uint32_t index) {
  const ProcessId id = next_process_++;
  auto& p = processes_[id] = std::make_unique<Process>();
  p->node = 1 + index;
  p->rank = index;
  network_.AddProcess(id, p->node);
  network_.Connect(id, kSchedulerPeer, scheduler_id_);
  p->checker = std::make_unique<ShardChecker>(&oracle_, [this, id](TableId table) {
    const scheduler::Scheduler* scheduler = Scheduler();
    for (const TableSpec& spec :
         scheduler != nullptr ? scheduler->view().tables : processes_.at(id)->shard->view().tables)
      if (spec.id == table) return scenario_.Of(spec.name);
    return ConsistencySpec();
  });
  p->store = MakeStore(id, ShardId(index));
  p->blobs = MakeBlobs(id, ShardId(index));
  server::ShardOptions options;
  options.shard = ShardId(index);
  options.shards_per_server = scenario_.job.fleet.shards;
  options.held_lists_bytes_max = scenario_.held_lists_bytes_max;
  options.held_lists_peer_bytes_max = 2 * scenario_.held_keys_bytes;
  if (scenario_.parked_pulls_max != 0) options.parked_pulls_max = scenario_.parked_pulls_max;
  if (scenario_.bucket_bytes_max != 0) options.bucket_bytes_max = scenario_.bucket_bytes_max;
  if (scenario_.tier_bytes != 0) options.make_tier = [this, id](const Job&) { return MakeTier(id); };
  if (scenario_.waiting_messages_max != 0) options.waiting_messages_max = scenario_.waiting_messages_max;
  if (scenario_.waiting_bytes_max != 0) options.waiting_bytes_max = scenario_.waiting_bytes_max;
  options.nonce = rng_.Next() | 1;
  options.endpoint = fmt::format("sim://shard-{}", index);
  p->log = MakeLog(id, index);
  options.log = p->log.get();
  options.blobs = p->blobs.get();
  // Cuts take many steps, with messages between them.
  options.cut_slice_bytes = scenario_.cut_slice_bytes;
  options.cut_pause_us = scenario_.cut_pause_us;
  options.unix_us_at_zero = unix_us_at_zero_[index];
  p->shard = std::make_unique<server::Shard>(options, p->store.get(), p->checker.get());
  Step(id, [this](Process& process, Outbox* out) { process.shard->Start(NowOf(process), out); });
  return id;
}

// Rows on disk: what is done for them ends some time later, in order.
server::Tier Fleet::MakeTier(ProcessId id) {
  auto store = std::make_unique<server::MemoryColdStore>([this, id] {
    const bool slow = tier_rng_.Chance(scenario_.faults.slow_tier) && events_.now() < scenario_.faults.until_us;
    const TimeUs most = slow ? kSlowTierUs : kFastTierUs;
    events_.At(events_.now() + 1 + TimeUs(tier_rng_.Below(std::uint64_t(most))), [this, id] {
      Step(id, [this](Process& process, Outbox* out) {
        process.cold->RunOne();
        process.shard->OnTier(NowOf(process), out);
      });
    });
  });
  processes_.at(id)->cold = store.get();
  PlanTierFaults(id);
  return {.store = std::move(store), .limit_bytes = scenario_.tier_bytes};
}

ProcessId Fleet::StartWorker(std::uint32_t rank) {
  const ProcessId id = next_process_++;
  auto& p = processes_[id] = std::make_unique<Process>();
  p->node = 1 + scenario_.shards + rank;
  p->rank = rank;
  network_.AddProcess(id, p->node);
  network_.Connect(id, kSchedulerPeer, scheduler_id_);
  worker::ClientOptions options;
  options.rank = scenario_.any_rank ? kAnyRank : rank;
  options.nonce = rng_.Next() | 1;
  options.resend_us = kResendUs;
  options.held_keys_min = 2;
  options.held_keys_bytes = scenario_.held_keys_bytes;
  options.piece_bytes = 64 + rng_.Below(4096);
  options.blob_chunk_bytes = 100 + options.piece_bytes / 4;
  options.credit_bytes = 256 + rng_.Below(65536);
  p->worker = std::make_unique<SimWorker>(scenario_, options, &oracle_, [this, id](TimeUs delay) {
    events_.At(events_.now() + delay, [this, id] {
      Step(id, [this](Process& process, Outbox* out) { process.worker->OnCompute(NowOf(process), out); });
    });
  });
  Step(id, [this](Process& process, Outbox* out) { process.worker->Start(NowOf(process), out); });
  return id;
}

void Fleet::Deliver(ProcessId to, Peer from, Message message) {
  auto it = processes_.find(to);
  if (it == processes_.end()) return;
  if (verbose_) {
    const auto* error = std::get_if<ErrorReply>(&message.body);
    Trace(fmt::format("{} <- {:x} {}{}", it->second->node, from.value, BodyName(message.body),
                      error == nullptr ? "" : fmt::format(" {}: {}", ErrorName(error->code), error->message)));
  }
  if (it->second->recovers_us != 0 && std::holds_alternative<Welcome>(message.body)) {
    it->second->paused_until = events_.now() + std::exchange(it->second->recovers_us, 0);
    SayLoading(to, LoadingOf(message), it->second->paused_until);
  }
  Step(to, [this, to, from, message = std::move(message)](Process& p, Outbox* out) {
    if (p.scheduler) {
      if (message.sender.role == Role::kShard) heard_[1 + message.sender.rank] = events_.now();
      p.scheduler->Hear(from, message, NowOf(p));
      OnSchedulerTold(message);
    }
    if (p.shard) {
      OverMemory(message, [&](Message m) { p.shard->OnMessage(from, std::move(m), NowOf(p), out); });
      CheckRefused(p, message, *out, from);
      CheckPaused(p, message, *out, from);
    }
    if (p.worker) {
      OverMemory(message, [&](Message m) { p.worker->Hear(from, std::move(m), NowOf(p)); });
      OnWorkerTold(p, message);
    }
    if (!p.shard) SettleSoon(to, p, out);
  });
}

// As server/loading_beacon.h does beside the shard.
void Fleet::SayLoading(ProcessId id, const Message& heartbeat, TimeUs until) {
  if (events_.now() >= until || !processes_.contains(id)) return;
  said_[processes_.at(id)->node] = events_.now();
  network_.Send(id, kSchedulerPeer, heartbeat);
  events_.At(events_.now() + kHeartbeatUs, [this, id, heartbeat, until] { SayLoading(id, heartbeat, until); });
}

// Half of the payloads are lent, as those are that lie in shared memory, and taken back at once.
void Fleet::OverMemory(const Message& message, const std::function<void(Message)>& hand_over) {
  if (turn_rng_.Chance(0.5)) return hand_over(message);
  Message lent = message;
  std::vector<std::shared_ptr<Buffer>> owners;
  for (Buffer* payload : {&lent.keys, &lent.values}) {
    if (payload->empty()) continue;
    const auto& owner = owners.emplace_back(std::make_shared<Buffer>(Buffer::Copy(payload->data(), payload->size())));
    *payload = Buffer::Lend(owner->data(), owner->size(), owner);
  }
  hand_over(std::move(lent));
  for (const auto& owner : owners) std::memset(owner->data(), kSpoilt, owner->size());
}

// As a loop does that may have received several messages at once.
void Fleet::SettleSoon(ProcessId id, Process& p, Outbox* out) {
  const auto settle = [this](Process& process, Outbox* its_out) {
    process.settles = false;
    if (process.scheduler) process.scheduler->Settle(NowOf(process), its_out);
    if (process.worker) process.worker->Settle(NowOf(process), its_out);
  };
  if (p.settles) return;
  if (turn_rng_.Chance(0.7)) return settle(p, out);
  p.settles = true;
  events_.At(events_.now() + 1 + TimeUs(turn_rng_.Below(kTurnUs)), [this, id, settle] { Step(id, settle); });
}

// Rule M3: who is fenced is served no more. A step adopts no view and handles a worker's message.
void Fleet::CheckRefused(const Process& shard, const Message& message, const Outbox& out, Peer from) {
  if (message.sender.role != Role::kWorker) return;
  for (const WorkerEntry& entry : shard.shard->view().workers) {
    if (entry.incarnation != message.sender.incarnation || entry.state == WorkerState::kLive) continue;
    for (const Outgoing& o : out) {
      const Body& body = o.message.body;
      if (o.to == from && (std::holds_alternative<PushAck>(body) || std::holds_alternative<PullReply>(body) ||
                           std::holds_alternative<TickAck>(body)))
        oracle_.Fail(fmt::format("shard {} answered {} of a fenced worker", shard.rank, BodyName(message.body)));
    }
  }
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
  if (process.shard) process.shard->OnLogSynced(NowOf(process), &out);  // as the loop does in every turn
  for (Outgoing& o : out) {
    if (process.shard && o.to == kSchedulerPeer) said_[process.node] = events_.now();
    if (process.scheduler) OnTold(o.message);
    network_.Send(id, o.to, o.message);
  }
  AfterStep(id, process);
  if (process.log) Witness(process);
  if (process.log) TendLog(id, process);
}

void Fleet::AfterStep(ProcessId id, Process& p) {
  if (p.scheduler) {
    if (p.scheduler->stopping()) scheduler_store_.Stopping();
    if (p.scheduler->view().version != last_view_) OnNewView(p.scheduler->view());
  } else if (p.shard) {
    if (p.shard->minimum_clock() < p.last_clock) oracle_.Fail("a shard's minimum clock went back");
    p.last_clock = p.shard->minimum_clock();
    if (p.shard->ended())
      p.over = true;
    else if (p.shard->stopped() && !std::exchange(p.stopped, true))
      LoseFirstWord(p);
  } else if (p.worker) {
    const worker::Client& client = p.worker->client();
    if (client.clock() < p.last_clock) oracle_.Fail("a worker's clock went back");
    p.last_clock = client.clock();
    if (client.state() == worker::ClientState::kRunning) oracle_.OnClock(client.welcome().incarnation, client.clock());
    ConnectToShards(id, p);
    CrashAtCut(p);
    const bool fenced = client.state() == worker::ClientState::kFenced;
    const bool stopped = client.state() == worker::ClientState::kStopped;
    if (fenced || (stopped && client.stop_reason().code != ErrorCode::kOk)) {
      fenced_ += fenced ? 1 : 0;
      oracle_.OnWorkerGone(client.welcome().incarnation);
      Trace(fmt::format("worker {} ends: {}", p.rank, client.stop_reason().reason));
      Restart(id, p.rank);
    }
    p.over = fenced || stopped;
  }
  if (!p.over) ArmTimer(id, p);
}

// A view counts once somebody may hear of it; before, the scheduler may forget it.
void Fleet::OnTold(const Message& message) {
  const auto* welcome = std::get_if<Welcome>(&message.body);
  const auto* update = std::get_if<ViewUpdate>(&message.body);
  if (welcome == nullptr && update == nullptr) return;
  const View& view = welcome != nullptr ? welcome->view : update->view;
  if (view.version <= last_sent_view_) return;
  last_sent_view_ = view.version;
  oracle_.OnView(view);
}

void Fleet::OnNewView(const View& view) {
  CutAtChange();
  last_view_ = view.version;
  if (std::exchange(last_whole_, view.whole) < view.whole) OnMoment(Moment::kWhole);
  if (std::exchange(last_order_, view.checkpoint.id) < view.checkpoint.id &&
      time_rng_.Chance(scenario_.faults.jump_at_cut))
    events_.At(events_.now() + TimeUs(time_rng_.Below(40'000)), [this] { JumpInTime(); });
}

// The process ends, and is started anew unless another has taken its place.
void Fleet::Restart(ProcessId id, std::uint32_t rank) {
  events_.At(events_.now() + 50'000, [this, id, rank] {
    if (!processes_.contains(id)) return;
    network_.RemoveProcess(id);
    processes_.erase(id);
    if (worker_of_rank_[rank] == id) worker_of_rank_[rank] = StartWorker(rank);
  });
}

void Fleet::ConnectToShards(ProcessId id, Process& p) {
  if (p.worker->client().view().version.value == 0) return;
  for (std::uint32_t i = 0; i < scenario_.shards; ++i)
    if (!network_.Connected(id, ShardPeer(ShardId(i))) && processes_.contains(shard_ids_[i]))
      network_.Connect(id, ShardPeer(ShardId(i)), shard_ids_[i], p.worker->client().lanes());
}

void Fleet::ArmTimer(ProcessId id, Process& p) {
  const TimeUs at = ToFleetTime(p, p.scheduler ? p.scheduler->NextTimer()
                                   : p.shard   ? p.shard->NextTimer()
                                               : p.worker->client().NextTimer());
  if (at == p.timer_at) return;
  p.timer_at = at;
  const std::uint64_t version = ++p.timer_version;
  events_.At(std::max(at, events_.now() + 1), [this, id, version] {
    auto it = processes_.find(id);
    if (it == processes_.end() || it->second->timer_version != version) return;
    it->second->timer_at = -1;
    Step(id, [this](Process& process, Outbox* out) {
      if (process.scheduler) process.scheduler->OnTimer(NowOf(process), out);
      if (process.shard) process.shard->OnTimer(NowOf(process), out);
      if (process.worker) process.worker->OnTimer(NowOf(process), out);
    });
  });
}

void Fleet::CheckFinal(Key key) {
  const View& view = processes_.at(scheduler_id_)->scheduler->view();
  const auto spec = std::ranges::find(view.tables, "counts", &TableSpec::name);
  if (spec == view.tables.end()) return oracle_.CheckFinalValue(key, 0, {});
  const Position position = Positioner(*spec, TableSalt(scenario_.job.job.seed, spec->name))(key);
  const ShardId owner = view.routes.OwnerOf(PartitionOf(position, view.routes.partition_bits));
  const server::Shard& shard = *processes_.at(shard_ids_[owner.value])->shard;
  oracle_.CheckFinalValue(key, shard.rows().Values(spec->id, key)[0], shard.minimum_clock());
}

void Fleet::CheckEnd() {
  const auto is_there = [this](ProcessId id) { return processes_.contains(id); };
  if (!std::ranges::all_of(shard_ids_, is_there)) {
    if (died_early_) return oracle_.Fail("the job is done, but a server had died");
    return oracle_.CheckData();  // its last part was in
  }
  for (Key key : oracle_.Keys()) CheckFinal(key);
  oracle_.CheckData();
}

// Rule K11. Who was cut off for a lease is not waited for, and the scheduler has said so.
void Fleet::CheckStop(RunResult* result) {
  result->stopped = true;
  const auto late = [](const scheduler::Note& note) {
    return note.text.find("without waiting for it") != std::string::npos;
  };
  const bool undrained = std::ranges::any_of(Scheduler()->TakeNotes(), late);
  const auto newest = std::ranges::max_element(disk_->manifests, {}, [](const auto& m) { return m.second.id; });
  if (newest == disk_->manifests.end() || undrained || scenario_.CutsAtClock()) return;
  result->drained = true;
  oracle_.CheckStopped(newest->second, ValuesIn(*disk_, {newest->second, newest->first}));
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

void Fleet::StartAll() {
  scheduler_store_.Started();
  scheduler_id_ = StartScheduler();
  shard_ids_.clear();
  worker_of_rank_.clear();
  for (std::uint32_t i = 0; i < scenario_.shards; ++i) shard_ids_.push_back(StartShard(i));
  for (std::uint32_t i = 0; i < scenario_.workers; ++i) worker_of_rank_.push_back(StartWorker(i));
}

scheduler::Scheduler* Fleet::Scheduler() {
  const auto it = processes_.find(scheduler_id_);
  return it == processes_.end() ? nullptr : it->second->scheduler.get();
}

RunResult Fleet::Run() {
  disk_->state = {};  // a run of its own, in a folder of its own
  for (std::uint32_t i = 0; i < scenario_.shards; ++i) unix_us_at_zero_[i] = resume_ ? kLaterUnixUs : kUnixUs;
  StartAll();
  if (resume_) oracle_.ResumeFrom(resume_->manifest, ValuesIn(*disk_, *resume_));
  if (resume_) TakeBlobs();
  PlanFaults();
  PlanOutages();
  PlanSlowSyncs();
  PlanTimeJumps();
  PlanDeaths();
  // The scheduler leaves a disk alone for a while that has failed to write its state, and some fail to the end. Its
  // clock may be slow.
  const auto limit = [&] {
    return scenario_.faults.until_us + kSettleUs +
           TimeUs(scheduler_store_.failed_states()) * scheduler::StateGate::kPauseUs * 5 / 4;
  };
  while (!over_ && (Scheduler() == nullptr || !Scheduler()->stopped() || GoesOnInPlace()) && !oracle_.failed()) {
    if (!events_.RunOne() || events_.now() > limit()) {
      oracle_.Fail("the run did not finish after faults had stopped:" + DescribeAll());
      break;
    }
  }
  if (Scheduler() == nullptr && !over_) ComeBack();
  const scheduler::Scheduler* scheduler = Scheduler();
  RunResult result;
  result.job_failed = over_ || scheduler->stop_reason().code != ErrorCode::kOk;
  if (!oracle_.failed() && !over_ && result.job_failed && !Excused(scheduler->stop_reason()))
    oracle_.Fail("the job failed: " + scheduler->stop_reason().reason);
  // A disk that has failed, or lies, may be noticed only now.
  const Status readable = server::CatchExhaustion([&] {
    if (!oracle_.failed() && !result.job_failed)
      scheduler->progress().phase == "stopped" ? CheckStop(&result) : CheckEnd();
    result.state_hash = StateHash();
    for (ProcessId id : shard_ids_)
      if (const auto it = processes_.find(id); it != processes_.end())
        result.parameters_hash += it->second->shard->rows().StateHash();
  });
  if (!readable && disk_->failed == 0) oracle_.Fail("rows cannot be read at the end: " + readable.error().message);
  result.job_failed |= !readable;
  result.seed = scenario_.seed;
  result.failure = oracle_.failure();
  result.acked_push_ids = oracle_.acked_push_ids();
  result.stalls = scheduler_store_.stalls();
  result.faults_fired =
      network_.counters().faults() + other_faults_ + crashes_ + outages_ + time_jumps_ + deaths_ + result.stalls;
  result.messages = network_.counters().delivered;
  result.events = events_.executed();
  result.crashes = crashes_;
  for (ProcessId id : shard_ids_) {
    if (!processes_.contains(id)) continue;
    const server::Shard& shard = *processes_.at(id)->shard;
    const server::Residency* tier = shard.rows().tier();
    if (tier == nullptr) continue;
    result.rows_from_disk += tier->counters().read_waiting + tier->counters().fetched;
    result.waited_for_rows += shard.counters().waited_for_rows;
  }
  result.spared = oracle_.spared();
  result.fenced = fenced_;
  result.workers_died = scheduler != nullptr ? scheduler->progress().workers_died : workers_died_;
  // What a worker has kept is of a checkpoint, and not in any log.
  result.bits_fixed = result.workers_died == deaths_in_outages_ && (!scenario_.top_k || outages_ + restarts_ == 0);
  result.bits_fixed &= std::ranges::all_of(shard_ids_, [this](ProcessId id) { return processes_.contains(id); });
  result.outages = outages_;
  result.power_cuts = power_cuts_;
  result.recoveries = recoveries_;
  result.time_jumps = time_jumps_;
  result.deaths = deaths_;
  result.simulated_us = events_.now();
  return result;
}

void Fleet::CheckCheckpoint(const ResumePoint& point) {
  if (!scenario_.CutsAtClock()) return;
  const std::map<Key, float> values = ValuesIn(*disk_, point);
  for (Key key : oracle_.Keys()) {
    const auto it = values.find(key);
    oracle_.CheckCutValue(point.manifest.resume_clock, key, it == values.end() ? 0 : it->second);
  }
}

}  // namespace tarn::sim
