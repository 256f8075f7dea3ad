#include "tests/unit/scheduler/fake_fleet.h"

#include <algorithm>

#include "core/limits.h"

namespace tarn::scheduler {
namespace {

constexpr Peer kToolPeer{kFirstAcceptedPeer - 1};

SchedulerOptions OptionsOf(const Job& job, const Manifest* resume, const SchedulerState* restore) {
  SchedulerOptions options;
  options.job = job;
  options.job_text = ToToml(job);
  options.checkpoints_directory = "run/checkpoints";
  options.resume = resume;
  options.resume_directory = resume != nullptr ? "old" : "";
  options.run = 17;
  options.restore = restore;
  return options;
}

}  // namespace

Job SmallJob(std::uint32_t shards, std::uint32_t workers) {
  Job job;
  job.fleet.shards = shards;
  job.fleet.workers = workers;
  job.fleet.lease_seconds = 5;
  job.fleet.heartbeat_seconds = 1;
  job.storage.durability = Durability::kNone;
  job.train.batch_rows = 10;
  job.data.split_rows = 30;
  job.data.train = "train";
  return job;
}

Job Durable(std::uint32_t shards, std::uint32_t workers) {
  Job job = SmallJob(shards, workers);
  job.storage.durability = Durability::kCheckpoint;
  return job;
}

Job LogJob(std::uint32_t shards, std::uint32_t workers) {
  Job job = SmallJob(shards, workers);
  job.storage.durability = Durability::kLog;
  job.storage.checkpoint_final = false;
  job.storage.checkpoint_seconds = 0;
  return job;
}

FakeFleet::FakeFleet(const Job& the_job, const Manifest* resume, const SchedulerState* restore)
    : job(the_job), scheduler(OptionsOf(the_job, resume, restore), &store) {
  if (restore != nullptr) next_nonce_ += 1'000'000;
  scheduler.Start(now);
}

FakeShard& FakeFleet::AddShard(std::uint32_t index) {
  auto shard = std::make_unique<FakeShard>();
  shard->shard = ShardId(index);
  shard->peer = Peer(next_peer_++);
  shard->nonce = next_nonce_++;
  shards.push_back(std::move(shard));
  FakeShard& added = *shards.back();
  Send(added, Join{.role = Role::kShard,
                   .rank = index,
                   .nonce = added.nonce,
                   .protocol_version = limits::kProtocolVersion,
                   .endpoint = "tcp://shard",
                   .http = http ? http(Role::kShard, index) : ""});
  return added;
}

FakeWorker& FakeFleet::AddWorker(std::uint32_t rank) {
  auto worker = std::make_unique<FakeWorker>();
  worker->rank = WorkerRank(rank);
  worker->peer = Peer(next_peer_++);
  worker->nonce = next_nonce_++;
  workers.push_back(std::move(worker));
  FakeWorker& added = *workers.back();
  Send(added, Join{.role = Role::kWorker,
                   .rank = rank,
                   .nonce = added.nonce,
                   .protocol_version = limits::kProtocolVersion,
                   .endpoint = {},
                   .http = http ? http(Role::kWorker, rank) : ""});
  return added;
}

void FakeFleet::AddAll() {
  for (std::uint32_t i = 0; i < job.fleet.servers * job.fleet.shards; ++i) AddShard(i);
  for (std::uint32_t i = 0; i < job.fleet.workers; ++i) AddWorker(i);
}

FakeWorker& FakeFleet::Newest(std::uint32_t rank) {
  for (auto it = workers.rbegin(); it != workers.rend(); ++it)
    if ((*it)->rank.value == rank) return **it;
  return *workers.front();
}

void FakeFleet::SendFrom(Peer peer, Message message) {
  scheduler.OnMessage(peer, std::move(message), now, &out_);
  Deliver();
}

void FakeFleet::Send(const FakeShard& shard, Body body) {
  Message message;
  message.job = Fingerprint(job);
  message.sender = {Role::kShard, shard.shard.value, shard.incarnation};
  message.body = std::move(body);
  SendFrom(shard.peer, std::move(message));
}

void FakeFleet::Send(const FakeWorker& worker, Body body) {
  Message message;
  message.job = Fingerprint(job);
  message.sender = {Role::kWorker, worker.rank.value, worker.incarnation};
  message.body = std::move(body);
  SendFrom(worker.peer, std::move(message));
}

std::vector<CheckpointRequest> FakeFleet::AskForCheckpoint(std::uint64_t number) {
  Message message;
  message.job = Fingerprint(job);
  message.sender = {Role::kScheduler, 0, Incarnation(0)};
  message.body = CheckpointRequest{number, ErrorCode::kOk, {}, {}};
  SendFrom(kToolPeer, std::move(message));
  return std::exchange(told_tool_, {});
}

void FakeFleet::HandleCompletedWrites() {
  for (auto written = store.TakeWritten(); !written.empty(); written = store.TakeWritten())
    for (const StoreWritten& end : written) scheduler.OnWritten(end, now, &out_);
  for (Note& note : scheduler.TakeNotes()) notes.push_back(std::move(note.text));
}

void FakeFleet::Deliver() {
  HandleCompletedWrites();
  Outbox taken = std::exchange(out_, {});
  for (const Outgoing& outgoing : taken) {
    if (on_send) on_send(outgoing);
    if (outgoing.to == kToolPeer)
      if (const auto* answer = std::get_if<CheckpointRequest>(&outgoing.message.body))
        if (answer->code != ErrorCode::kOk || !answer->directory.empty()) told_tool_.push_back(*answer);
    for (auto& shard : shards)
      if (shard->peer == outgoing.to && !shard->silent) Receive(*shard, outgoing.message);
    for (auto& worker : workers)
      if (worker->peer == outgoing.to && !worker->silent) Receive(*worker, outgoing.message);
  }
}

void FakeFleet::Receive(FakeShard& shard, const Message& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message.body)) {
    shard.incarnation = welcome->incarnation;
    shard.resume_directory = welcome->resume_directory;
    shard.log = welcome->log;
    shard.min_clock = std::max(shard.min_clock, welcome->start_clock);
    Adopt(shard, welcome->view);
  } else if (const auto* update = std::get_if<ViewUpdate>(&message.body)) {
    Adopt(shard, update->view);
  } else if (const auto* shutdown = std::get_if<Shutdown>(&message.body)) {
    if (shard.shutdown) return;
    shard.shutdown = *shutdown;
    Send(shard, Shutdown{});
  }
}

void FakeFleet::Adopt(FakeShard& shard, const View& view) {
  if (shard.deaf || view.version <= shard.view.version) return;
  shard.view = view;
  UpdateShards();
  Heartbeat(shard);
}

// Updates minimum clocks and makes cuts that have become possible.
void FakeFleet::UpdateShards() {
  for (auto& shard : shards) {
    if (shard->view.version == ViewVersion(0)) continue;
    std::optional<Clock> least;
    Clock largest_end;
    for (const WorkerEntry& entry : shard->view.workers) {
      largest_end = std::max(largest_end, entry.end);
      if (entry.state == WorkerState::kEnded) continue;
      const Clock tick = std::max(entry.join, shard->ticks[entry.incarnation]);
      least = least ? std::min(*least, tick) : tick;
    }
    shard->min_clock = std::max(shard->min_clock, least.value_or(largest_end));
  }
}

void FakeFleet::Heartbeat(FakeShard& shard) {
  tarn::Heartbeat beat;
  beat.view = shard.view.version;
  beat.clock = shard.min_clock;
  beat.writing = shard.writing;
  for (const WorkerEntry& entry : shard.view.workers) {
    if (entry.state != WorkerState::kFencing) continue;
    FencedTick tick;
    tick.incarnation = entry.incarnation;
    tick.tick = shard.ticks[entry.incarnation];
    tick.position = shard.positions[entry.incarnation];
    beat.fenced.push_back(tick);
    if (const auto it = shard.earlier.find(entry.incarnation); it != shard.earlier.end())
      beat.fenced_ticks.push_back({entry.incarnation, it->second.clock, it->second.position});
  }
  Send(shard, beat);
  const CheckpointOrder order = shard.view.checkpoint;
  if (order.id.value == 0 || !shard.writes_parts) return;
  if (order.at_clock && shard.min_clock < order.clock) return;
  shard.cut.insert(order.id);
  CheckpointPart part;
  part.id = order.id;
  part.state_hash = 100 + shard.shard.value;
  part.max_clock = shard.min_clock;
  if (!order.directory.empty()) {
    const std::string name = std::to_string(order.id.value) + "-shard-" + std::to_string(shard.shard.value);
    part.files.push_back({name, order.base.value == 0 ? shard.full_bytes : shard.delta_bytes, 2, 3});
    part.tables = {{TableId(1), 3, order.base.value == 0 ? 0u : 1u, 2, 10}};
  }
  if (order.whole_hash) part.whole_hash = 100 + shard.shard.value;
  if (!shard.part_error.empty()) {
    part.code = ErrorCode::kIo;
    part.message = shard.part_error;
  } else if (shard.lost_base == order.base && order.base.value != 0) {
    part.code = ErrorCode::kNotFound;
    part.message = order.base_directory + "/1-shard-0: not there";
  }
  Send(shard, part);
}

void FakeFleet::Receive(FakeWorker& worker, const Message& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message.body)) {
    if (worker.incarnation.value != 0 || welcome->nonce != worker.nonce) return;
    worker.incarnation = welcome->incarnation;
    worker.rank = WorkerRank(welcome->rank);
    worker.clock = worker.start = welcome->start_clock;
    Adopt(worker, welcome->view);
  } else if (const auto* update = std::get_if<ViewUpdate>(&message.body)) {
    Adopt(worker, update->view);
  } else if (const auto* reply = std::get_if<LeaseReply>(&message.body)) {
    if (reply->number != worker.number || !worker.waits) return;
    worker.waits = false;
    worker.done.clear();
    worker.finished = reply->finished;
    for (const LeaseGrant& grant : reply->grants) {
      if (worker.leases.empty()) worker.trained = grant.skip_rows;
      worker.leases.push_back(grant);
    }
    if (reply->grants.empty() && reply->jump_to > worker.clock) worker.jump = reply->jump_to;
  } else if (const auto* created = std::get_if<CreateTable>(&message.body)) {
    worker.tables.push_back(*created);
  } else if (const auto* barrier = std::get_if<Barrier>(&message.body)) {
    worker.barriers.push_back(barrier->number);
  } else if (const auto* shutdown = std::get_if<Shutdown>(&message.body)) {
    if (worker.shutdowns_lost > 0) {
      --worker.shutdowns_lost;
      return;
    }
    if (worker.shutdown) return;
    worker.shutdown = *shutdown;
    Send(worker, Shutdown{});
  }
}

void FakeFleet::Adopt(FakeWorker& worker, const View& view) {
  if (view.version <= worker.view.version) return;
  worker.view = view;
  if (view.proposal.open && view.proposal.id > worker.obeyed) {
    worker.obeyed = view.proposal.id;
    worker.limit = worker.clock + (view.proposal.drain ? 0 : kProposalSlack);
    if (view.proposal.drain && worker.drains) worker.drained = view.proposal.id;
  }
  if (!view.proposal.open) {
    worker.obeyed = std::max(worker.obeyed, view.proposal.id);
    worker.limit = Clock(UINT64_MAX);
  }
  Heartbeat(worker);
}

void FakeFleet::Heartbeat(FakeWorker& worker) {
  if (worker.incarnation.value == 0) return;
  tarn::Heartbeat beat;
  beat.view = worker.view.version;
  beat.proposal = worker.obeyed;
  beat.drained = worker.drained;
  beat.clock = beat.acked_clock = worker.clock;
  beat.position = worker.position;
  Send(worker, beat);
  const CheckpointOrder order = worker.view.checkpoint;
  if (order.id.value == 0 || !order.at_clock || worker.clock < order.clock) return;
  if (!worker.part || worker.part->id != order.id) {
    worker.part.emplace();
    worker.part->id = order.id;
    worker.part->clock = worker.clock;
    worker.part->position = worker.position;
  }
  Send(worker, *worker.part);
}

void FakeFleet::Pass(double seconds) {
  const TimeUs end = now + static_cast<TimeUs>(seconds * 1e6);
  while (now < end) {
    now = std::min(end, now + 500'000);
    UpdateShards();
    for (auto& shard : shards)
      if (!shard->silent && !shard->shutdown && shard->incarnation.value != 0) Heartbeat(*shard);
    for (auto& worker : workers) {
      if (worker->silent || worker->shutdown) continue;
      if (worker->incarnation.value != 0) {
        Heartbeat(*worker);
        continue;
      }
      Send(*worker, Join{.role = Role::kWorker,
                         .rank = worker->rank.value,
                         .nonce = worker->nonce,
                         .protocol_version = limits::kProtocolVersion,
                         .endpoint = {}});
    }
    if (now >= scheduler.NextTimer()) scheduler.OnTimer(now, &out_);
    Deliver();
  }
}

void FakeFleet::Tick(FakeWorker& worker, Clock clock) {
  worker.clock = clock;
  for (auto& shard : shards) {
    shard->ticks[worker.incarnation] = clock;
    shard->positions[worker.incarnation] = worker.position;
  }
  UpdateShards();
  // Parts go out when a clock first reaches an order's.
  if (worker.view.checkpoint.at_clock && clock >= worker.view.checkpoint.clock) Heartbeat(worker);
  for (auto& shard : shards) {
    const CheckpointOrder& order = shard->view.checkpoint;
    if (!shard->silent && order.at_clock && shard->min_clock >= order.clock && !shard->cut.contains(order.id))
      Heartbeat(*shard);
  }
}

Clock FakeFleet::HighestTick(const FakeWorker& worker) const {
  Clock highest = worker.start;
  for (const auto& shard : shards)
    if (auto it = shard->ticks.find(worker.incarnation); it != shard->ticks.end())
      highest = std::max(highest, it->second);
  return highest;
}

void FakeFleet::KillInTick(FakeWorker& worker, std::size_t shards_reached) {
  if (!worker.leases.empty() && worker.leases.front().purpose == LeasePurpose::kTrain) {
    const LeaseGrant& lease = worker.leases.front();
    const std::uint64_t count = std::min(lease.batch_rows, lease.rows - worker.trained);
    batches_[worker.incarnation].push_back({worker.clock, lease.epoch, lease.first_row + worker.trained, count});
    for (std::size_t i = 0; i < std::min(shards_reached, shards.size()); ++i) {
      shards[i]->ticks[worker.incarnation] = worker.clock + 1;
      shards[i]->positions[worker.incarnation] = {lease.lease, worker.trained + count};
    }
    UpdateShards();
  }
  Kill(worker);
}

void FakeFleet::TrainBatch(FakeWorker& worker) {
  const LeaseGrant lease = worker.leases.front();
  if (lease.purpose == LeasePurpose::kTrain) {
    const std::uint64_t count = std::min(lease.batch_rows, lease.rows - worker.trained);
    batches_[worker.incarnation].push_back({worker.clock, lease.epoch, lease.first_row + worker.trained, count});
    worker.trained += count;
    worker.position = {lease.lease, worker.trained};
    Tick(worker, worker.clock + 1);
    if (worker.trained < lease.rows) return;
  }
  LeaseDone done;
  done.lease = lease.lease;
  done.quality.rows = lease.rows - lease.skip_rows;
  done.quality.loss_sum =
      static_cast<double>(done.quality.rows) * (lease.purpose == LeasePurpose::kValidate ? valid_loss : other_loss);
  worker.done.push_back(done);
  worker.leases.erase(worker.leases.begin());
  worker.trained = worker.leases.empty() ? 0 : worker.leases.front().skip_rows;
}

bool FakeFleet::PullsAnswered(const FakeWorker& worker) const {
  if (job.consistency.mode == ConsistencyMode::kAsp) return true;
  return std::all_of(shards.begin(), shards.end(),
                     [&](const auto& shard) { return shard->min_clock + job.consistency.staleness >= worker.clock; });
}

bool FakeFleet::Ask(FakeWorker& worker) {
  if (worker.waits) return false;
  LeaseRequest request;
  request.number = ++worker.number;
  request.want = 2;
  request.done = worker.done;
  std::copy(std::begin(rows), std::end(rows), request.rows.begin());
  worker.waits = true;
  Send(worker, request);
  return !worker.waits;
}

bool FakeFleet::Work(FakeWorker& worker) {
  if (worker.silent || worker.shutdown || worker.incarnation.value == 0) return false;
  if (worker.finished && !worker.stays) {
    Send(worker, Leave{worker.clock, worker.position});
    return true;
  }
  if (!worker.leases.empty()) {
    if (worker.leases.front().purpose == LeasePurpose::kTrain && worker.clock >= worker.limit) return false;
    if (!PullsAnswered(worker)) return false;
    TrainBatch(worker);
    return true;
  }
  if (worker.jump) {
    const Clock to = std::min(*worker.jump, worker.limit);
    if (to <= worker.clock && to < *worker.jump) return false;
    if (to >= *worker.jump) worker.jump.reset();
    Tick(worker, std::max(to, worker.clock));
    return true;
  }
  return Ask(worker);
}

void FakeFleet::Step() {
  bool worked = false;
  for (std::size_t i = 0; i < workers.size(); ++i) worked |= Work(*workers[i]);
  if (!worked) Pass(0.5);
}

bool FakeFleet::RunToEnd(int steps) {
  for (int step = 0; step < steps && !scheduler.stopped(); ++step) Step();
  for (const auto& [incarnation, batches] : batches_) {
    // Batches of a killed worker count up to its highest tick.
    Clock end(UINT64_MAX);
    for (const auto& worker : workers)
      if (worker->incarnation == incarnation && worker->silent) end = HighestTick(*worker);
    for (const Batch& batch : batches)
      for (std::uint64_t row = 0; row < batch.rows && batch.clock < end; ++row)
        ++trained[{batch.epoch, batch.first_row + row}];
  }
  return scheduler.stopped();
}

}  // namespace tarn::scheduler
