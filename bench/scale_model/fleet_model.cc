#include "bench/scale_model/fleet_model.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "bench/scale_model/machine.h"
#include "bench/scale_model/message_costs.h"
#include "bench/scale_model/trainer_model.h"
#include "core/hash.h"
#include "core/limits.h"
#include "scheduler/scheduler.h"
#include "server/shard/shard.h"
#include "sim/disks/memory_checkpoint_store.h"

namespace tarn::scale {
namespace {

// As the loops of server/ and worker/train/.
constexpr std::size_t kTurnMessages = 256;
constexpr double kFlushBytes = 128 << 10;
constexpr Ns kSchedulerTurnNs = 100'000;
constexpr Ns kTimerNs = 50'000'000;  // how often timers are looked at
constexpr std::uint64_t kSplitBatches = 8;
// A run that has more simulated time than this behind it is stuck.
constexpr Ns kStuckNs = Ns{1'200'000'000'000};

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class NoStore : public scheduler::SchedulerStore {
 public:
  void WriteManifest(CheckpointId, const std::string&, const Manifest&) override {}
  void RemoveCheckpoint(const std::string&) override {}
};

struct Arrived {
  Peer from;
  Message message;
  Extent extent;
};

class FleetModel {
 public:
  FleetModel(const Job& job, const FleetOptions& options, const Costs& costs, Workload* workload, Meter* meter);
  FleetResult Run();

 private:
  struct Contributions {
    double count = 0, sparse_rows = 0, dense_rows = 0;
  };
  struct Node : server::ShardObserver {
    FleetModel* fleet = nullptr;
    std::uint32_t index = 0;
    bool is_worker = false;
    std::unique_ptr<Host> own_host;
    std::unique_ptr<Thread> main, io, reader;
    std::unique_ptr<server::MemoryCheckpointStore> store;
    std::unique_ptr<server::Shard> shard;
    std::unique_ptr<TrainerModel> trainer;
    Wire out_wire, in_wire;
    double out_wire_ns = 0, in_wire_ns = 0;  // that the link was busy
    std::deque<Arrived> inbox;
    std::size_t turn_left = 0;
    double turn_copies = 0;  // messages of shards that this turn has heard so far
    bool busy = false, reading = false, wants_turn = false, may_compute = true, was_ready = false;
    std::vector<std::pair<Outgoing, Extent>> unsent;
    double unsent_bytes = 0;
    double compute_ns = 0;
    // Of the step in progress.
    double extra_ns = 0;
    Outbox* out = nullptr;
    bool observed = false;
    std::map<Clock, Contributions> buckets;

    void OnClockClosed(Clock clock) override { fleet->OnClosed(this, clock); }
    void OnPullServed(Incarnation, TableId, Clock, Clock) override { fleet->OnServed(this); }
  };
  struct Busy {  // so far
    double compute = 0, main = 0, io = 0, out_wire = 0, in_wire = 0;
  };

  void MakeNodes(const Job& job);
  void MakeThreads(Node* node);
  void SetUp();
  TimeUs NowUs() const { return events_.now() / 1000; }
  Node& NodeOf(Peer peer) { return *nodes_[peer.value - kFirstAcceptedPeer]; }
  Peer PeerOf(const Node& node) const { return Peer(kFirstAcceptedPeer + (node.is_worker ? shards_ : 0) + node.index); }
  double Slow(const Node& node) const;
  // The shard's end of a message; 0 where the scheduler is the other.
  std::uint32_t ShardOf(const Node& from, Peer to) const {
    if (!from.is_worker) return from.index;
    return to == kSchedulerPeer ? 0 : static_cast<std::uint32_t>(to.value - ShardPeer(ShardId(0)).value);
  }

  void TimerOf(Node* node);
  void SchedulerTimer();
  void ToScheduler(Peer from, Message message);
  void SettleScheduler();
  void FromScheduler(Outbox* out);
  void Deliver(Node* node, Arrived arrived);
  void Pump(Node* node);
  void HandleMessage(Node* node);
  // What a message costs besides CostIn; its answers go to `out`.
  double HearWorker(Node* node, Arrived arrived, Outbox* out);
  double HearShard(Node* node, Arrived arrived, Outbox* out);
  void Compute(Node* node);
  void TakeTurn(Node* node);
  // Ends a step: its messages leave once `ns` of the node's main thread have passed, and if `flush`.
  void EndStep(Node* node, Outbox* out, double ns, const Extent* asked, bool flush);
  void Flush(Node* node);
  void Send(Node* from, Outgoing outgoing, const Extent& extent);
  void Read(Node* node);
  void OnClosed(Node* node, Clock clock);
  void OnServed(Node* node);
  void MeasureWorker(Work work, const Extent& extent);
  void MeasureSettle(const Outbox& out);
  void MeasureShard(const Node& node, const Body& body, const Extent& extent);
  void OnBatch();
  Busy BusyOf(const Node& node) const;
  FleetResult Summarize();
  void SayHowFar();

  FleetOptions options_;
  const Costs& costs_;
  const MessageCosts message_costs_;
  Workload* workload_;
  Meter* meter_;
  std::uint32_t shards_;
  sim::EventQueue events_;
  Host shared_host_;
  NoStore scheduler_store_;
  server::MemoryCheckpointFiles files_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  std::vector<std::unique_ptr<Node>> nodes_;  // shards, then workers
  bool begun_ = false, over_ = false;
  std::uint32_t ready_ = 0;
  std::uint64_t batches_ = 0;
  double began_ns_ = 0, ended_ns_ = 0;
  std::vector<Busy> at_begin_;
  double messages_ = 0, ticks_ = 0, bytes_ = 0;
  bool scheduler_settles_ = false;
  double scheduler_seconds_ = 0, scheduler_messages_ = 0;  // of this machine's time
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now(), said_ = started_;
};

FleetModel::FleetModel(const Job& job, const FleetOptions& options, const Costs& costs, Workload* workload,
                       Meter* meter)
    : options_(options),
      costs_(costs),
      message_costs_(job, options, costs, workload),
      workload_(workload),
      meter_(meter),
      shards_(options.servers / options.bundle),
      shared_host_(&events_, options.cores, costs.busy_slowdown) {
  MakeNodes(job);
}

void FleetModel::MakeNodes(const Job& given) {
  Job job = given;
  job.fleet.servers = shards_;
  job.fleet.shards = 1;
  job.fleet.workers = options_.workers;
  job.fleet.heartbeat_seconds = 5;
  job.fleet.lease_seconds = 1000;  // nobody dies; setting up takes no simulated time
  job.storage = {};
  job.storage.durability = Durability::kNone;
  job.train.batch_rows = workload_->batch_rows();
  job.train.epochs = 1;
  job.data.split_rows = kSplitBatches * workload_->batch_rows();
  scheduler::SchedulerOptions scheduler;
  scheduler.job = job;
  scheduler.job_text = ToToml(job);
  scheduler_ = std::make_unique<scheduler::Scheduler>(std::move(scheduler), &scheduler_store_);

  TrainerModelOptions trainer;
  trainer.prefetch = job.train.prefetch;
  // Enough for those that are ahead of others, too.
  trainer.train_rows = std::uint64_t{options_.workers} * workload_->batch_rows() *
                       (2 * std::uint64_t{options_.warm_up + options_.clocks} + 4 * kSplitBatches);
  const TableSpec& sparse = workload_->tables().front().spec;
  const double shrunk = (sizeof(Key) + 4.0 * sparse.dim) / (sizeof(Key) + 4.0 * workload_->wire_dim(sparse.id));
  trainer.client.piece_bytes = static_cast<std::size_t>(double(limits::kPieceBytes) * shrunk);
  trainer.client.credit_bytes = static_cast<std::size_t>(double(limits::kCreditBytes) * shrunk);
  for (std::uint32_t i = 0; i < shards_ + options_.workers; ++i) {
    Node& node = *nodes_.emplace_back(std::make_unique<Node>());
    node.fleet = this;
    node.is_worker = i >= shards_;
    node.index = node.is_worker ? i - shards_ : i;
    MakeThreads(&node);
    if (node.is_worker) {
      trainer.client.rank = node.index;
      trainer.client.nonce = Mix64(options_.seed ^ (i + 1)) | 1;
      trainer.first_batch = Mix64(options_.seed + i) % workload_->batches();
      node.trainer = std::make_unique<TrainerModel>(trainer, workload_, meter_);
    } else {
      server::ShardOptions shard;
      shard.shard = ShardId(i);
      shard.nonce = Mix64(options_.seed ^ (i + 1)) | 1;
      shard.endpoint = fmt::format("sim://{}", i);
      node.store = std::make_unique<server::MemoryCheckpointStore>(&files_, shard.shard, [](CheckpointPart) {});
      node.shard = std::make_unique<server::Shard>(shard, node.store.get(), &node);
    }
  }
}

void FleetModel::MakeThreads(Node* node) {
  if (options_.cores == 0) node->own_host = std::make_unique<Host>(&events_, 0, 1);
  Host* host = options_.cores == 0 ? node->own_host.get() : &shared_host_;
  node->main = std::make_unique<Thread>(host);
  node->io = std::make_unique<Thread>(host);
  node->reader = std::make_unique<Thread>(host);
}

// A bundle is as slow as its slowest server.
double FleetModel::Slow(const Node& node) const {
  const StragglerOptions& s = options_.stragglers;
  if (s.share <= 0) return 1;
  const auto period = s.period_seconds > 0 ? std::uint64_t(double(events_.now()) * 1e-9 / s.period_seconds) : 0;
  SplitMix random(HashCombine(HashCombine(options_.seed, PeerOf(node).value), period));
  const double share = node.is_worker ? s.share : 1 - std::pow(1 - s.share, options_.bundle);
  return random.Unit() < share ? s.times_slower : 1;
}

void FleetModel::OnClosed(Node* node, Clock clock) {
  node->observed = true;
  const Contributions c = node->buckets[clock];
  node->buckets.erase(node->buckets.begin(), node->buckets.upper_bound(clock));
  const Amount amount{c.count, c.sparse_rows, c.dense_rows,
                      c.sparse_rows * workload_->DifferentShare(options_.workers)};
  if (meter_ != nullptr) {
    if (begun_ && c.count > 0) meter_->Add(Work::kClose, {amount, meter_->Lap()});
  } else if (!options_.free) {
    node->extra_ns += costs_[Work::kClose](amount);
  }
}

void FleetModel::OnServed(Node* node) {
  node->observed = true;
  if (meter_ == nullptr || !begun_) return;
  const auto& reply = std::get<PullReply>(node->out->back().message.body);
  Amount amount{.messages = 1};
  (workload_->dense(reply.table) ? amount.dense : amount.rows) = workload_->WorkRows(reply.table, reply.count);
  meter_->Add(Work::kServe, {amount, meter_->Lap()});
}

void FleetModel::MeasureShard(const Node& node, const Body& body, const Extent& extent) {
  const Sample sample{{.messages = 1, .rows = extent.rows, .dense = extent.dense}, meter_->Lap()};
  if (!begun_ || node.observed) return;
  if (std::holds_alternative<Pull>(body)) meter_->Add(Work::kPark, sample);
  if (std::holds_alternative<Tick>(body)) meter_->Add(Work::kShardTick, sample);
  if (std::holds_alternative<Push>(body)) {
    const bool aggregated = workload_->tables().front().spec.consistency.apply == ApplyMode::kAggregated;
    meter_->Add(aggregated ? Work::kGather : Work::kApply, sample);
  }
}

void FleetModel::MeasureWorker(Work work, const Extent& extent) {
  const Amount amount{1, extent.rows, extent.dense, double(options_.servers)};
  const Sample sample{amount, meter_->Lap()};
  if (begun_ && work != Work::kCount) meter_->Add(work, sample);
}

// With ticks to send it is the cost of these.
void FleetModel::MeasureSettle(const Outbox& out) {
  const double ns = meter_->Lap();
  if (!begun_) return;
  if (out.empty())
    meter_->Add(Work::kSettle, {{.messages = 1, .third = double(options_.servers)}, ns});
  else if (std::ranges::all_of(out, [](const Outgoing& o) { return std::holds_alternative<Tick>(o.message.body); }))
    meter_->Add(Work::kTick, {{.messages = double(out.size())}, ns});
}

void FleetModel::SetUp() {
  scheduler_->Start(NowUs());
  SchedulerTimer();
  for (auto& node : nodes_) {
    Outbox out;
    if (node->is_worker)
      node->trainer->Start(NowUs(), &out);
    else
      node->shard->Start(NowUs(), &out);
    EndStep(node.get(), &out, 0, nullptr, true);
    TimerOf(node.get());
  }
  while (ready_ < options_.workers) {
    TARN_CHECK(events_.RunOne() && events_.now() < kStuckNs, "a simulated fleet does not get ready");
    SayHowFar();
  }
  begun_ = true;
  for (auto& node : nodes_) {
    if (!node->is_worker) continue;
    node->trainer->Begin();
    node->wants_turn = true;
    events_.At(events_.now(), [this, n = node.get()] { Pump(n); });
  }
}

FleetResult FleetModel::Run() {
  SetUp();
  while (!over_) {
    TARN_CHECK(events_.RunOne() && events_.now() < kStuckNs, "a simulated fleet is stuck");
    SayHowFar();
  }
  return Summarize();
}

void FleetModel::SayHowFar() {
  if (options_.progress_seconds <= 0 || events_.executed() % 4096 != 0 ||
      SecondsSince(said_) < options_.progress_seconds)
    return;
  said_ = std::chrono::steady_clock::now();
  const double clocks = double(batches_) / options_.workers;
  if (begun_)
    fmt::print(stderr, "scale_model: {} workers, {} servers: clock {:.1f} of {}, {:.0f} s\n", options_.workers,
               options_.servers, clocks, options_.warm_up + options_.clocks, SecondsSince(started_));
  else
    fmt::print(stderr, "scale_model: {} workers, {} servers: {} workers ready, {:.0f} s\n", options_.workers,
               options_.servers, ready_, SecondsSince(started_));
}

void FleetModel::SchedulerTimer() {
  Outbox out;
  if (NowUs() >= scheduler_->NextTimer()) scheduler_->OnTimer(NowUs(), &out);
  FromScheduler(&out);
  events_.At(events_.now() + kTimerNs, [this] { SchedulerTimer(); });
}

void FleetModel::TimerOf(Node* node) {
  Outbox out;
  const TimeUs now = NowUs();
  if (node->is_worker) {
    if (now >= node->trainer->client().NextTimer()) node->trainer->OnTimer(now, &out);
  } else if (now >= node->shard->NextTimer()) {
    node->shard->OnTimer(now, &out);
  }
  for (Outgoing& o : out) Send(node, std::move(o), message_costs_.ExtentOf(o.message, ShardOf(*node, o.to), nullptr));
  events_.At(events_.now() + kTimerNs, [this, node] { TimerOf(node); });
}

// What comes within one turn of its loop is settled together.
void FleetModel::ToScheduler(Peer from, Message message) {
  const auto begin = std::chrono::steady_clock::now();
  scheduler_->Hear(from, std::move(message), NowUs());
  scheduler_seconds_ += SecondsSince(begin);
  ++scheduler_messages_;
  if (std::exchange(scheduler_settles_, true)) return;
  events_.At(events_.now() + kSchedulerTurnNs, [this] { SettleScheduler(); });
}

void FleetModel::SettleScheduler() {
  scheduler_settles_ = false;
  Outbox out;
  const auto begin = std::chrono::steady_clock::now();
  scheduler_->Settle(NowUs(), &out);
  scheduler_seconds_ += SecondsSince(begin);
  FromScheduler(&out);
}

void FleetModel::FromScheduler(Outbox* out) {
  for (Outgoing& o : *out) {
    Node* to = &NodeOf(o.to);
    if (to->is_worker) {
      auto* welcome = std::get_if<Welcome>(&o.message.body);
      auto* update = std::get_if<ViewUpdate>(&o.message.body);
      View* view = welcome != nullptr ? &welcome->view : update != nullptr ? &update->view : nullptr;
      if (view != nullptr) {
        std::erase_if(view->workers, [&](const WorkerEntry& entry) { return entry.rank.value != to->index; });
        view->workers.shrink_to_fit();
      }
    }
    events_.At(events_.now(), [this, to, message = std::move(o.message)]() mutable {
      Deliver(to, {kSchedulerPeer, std::move(message), Extent{}});
    });
  }
}

void FleetModel::Deliver(Node* node, Arrived arrived) {
  if (over_) return;
  node->inbox.push_back(std::move(arrived));
  Pump(node);
}

void FleetModel::Pump(Node* node) {
  if (node->busy) return;
  const bool ready = begun_ && node->is_worker && node->trainer->FrontReady();
  if (node->turn_left > 0) return HandleMessage(node);
  if (ready && (node->may_compute || node->inbox.empty())) return Compute(node);
  node->may_compute = true;
  if (!node->inbox.empty()) {
    node->turn_left = std::min(node->inbox.size(), kTurnMessages);
    return HandleMessage(node);
  }
  if (node->wants_turn) TakeTurn(node);
}

void FleetModel::HandleMessage(Node* node) {
  Arrived arrived = std::move(node->inbox.front());
  node->inbox.pop_front();
  --node->turn_left;
  double ns = arrived.from == kSchedulerPeer || !begun_
                  ? 0
                  : message_costs_.In(node->is_worker, arrived.message.body, arrived.extent);
  Outbox out;
  const Extent extent = arrived.extent;
  ns += node->is_worker ? HearWorker(node, std::move(arrived), &out) : HearShard(node, std::move(arrived), &out);
  EndStep(node, &out, ns, &extent, node->turn_left == 0);
}

double FleetModel::HearShard(Node* node, Arrived arrived, Outbox* out) {
  if (const auto* push = std::get_if<Push>(&arrived.message.body)) {
    Contributions& c = node->buckets[push->clock];
    c.count += std::max(double(push->keys.sections.size()), arrived.extent.copies) * arrived.extent.part;
    c.sparse_rows += arrived.extent.rows * arrived.extent.part;
    c.dense_rows += arrived.extent.dense * arrived.extent.part;
  }
  node->extra_ns = 0;
  node->observed = false;
  node->out = out;
  if (meter_ != nullptr) meter_->Begin();
  const Body body = meter_ != nullptr ? arrived.message.body : Body{};
  node->shard->OnMessage(arrived.from, std::move(arrived.message), NowUs(), out);
  if (meter_ != nullptr) MeasureShard(*node, body, arrived.extent);
  return node->extra_ns;
}

// The client settles once a turn; a turn that stands for more messages than one may have, as often as their turns.
double FleetModel::HearWorker(Node* node, Arrived arrived, Outbox* out) {
  if (arrived.from != kSchedulerPeer) node->turn_copies += arrived.extent.copies;
  const Work work = WorkOfAnswer(arrived.message.body);
  if (meter_ != nullptr) meter_->Begin();
  node->trainer->Hear(arrived.from, std::move(arrived.message), NowUs());
  if (meter_ != nullptr) MeasureWorker(work, arrived.extent);
  if (node->turn_left > 0) return 0;
  if (meter_ != nullptr) meter_->Begin();
  node->trainer->Settle(NowUs(), out);
  if (meter_ != nullptr) MeasureSettle(*out);
  const double turns = std::ceil(std::exchange(node->turn_copies, 0) / double(kTurnMessages));
  node->trainer->Turn(NowUs(), out);
  if (!begun_ && !node->was_ready && node->trainer->ready()) {
    node->was_ready = true;
    ++ready_;
  }
  return begun_ ? message_costs_.Of(node->is_worker, Work::kSettle, {.copies = turns}) : 0;
}

void FleetModel::TakeTurn(Node* node) {
  node->wants_turn = false;
  Outbox out;
  node->trainer->Turn(NowUs(), &out);
  EndStep(node, &out, 0, nullptr, true);
}

void FleetModel::Compute(Node* node) {
  node->busy = true;
  node->may_compute = false;
  const double ns = Slow(*node) * costs_[Work::kCompute]({1, double(workload_->batch_rows())});
  node->compute_ns += ns;
  node->main->Run(ns, [this, node] {
    Outbox out;
    node->trainer->OnComputed(NowUs(), &out);
    OnBatch();
    node->trainer->Turn(NowUs(), &out);
    node->busy = false;
    EndStep(node, &out, 0, nullptr, true);
  });
}

void FleetModel::EndStep(Node* node, Outbox* out, double ns, const Extent* asked, bool flush) {
  for (Outgoing& o : *out) {
    const Extent extent = message_costs_.ExtentOf(o.message, ShardOf(*node, o.to), asked);
    if (begun_ && o.to != kSchedulerPeer) ns += message_costs_.Out(node->is_worker, o.message.body, extent);
    node->unsent_bytes += extent.bytes * extent.part;
    node->unsent.emplace_back(std::move(o), extent);
  }
  flush = flush || node->unsent_bytes >= kFlushBytes;
  if (node->is_worker) Read(node);
  const auto end = [this, node, flush] {
    node->busy = false;
    if (flush) Flush(node);
    Pump(node);
  };
  if (ns <= 0 && !begun_) return end();
  node->busy = true;
  node->main->Run(ns * Slow(*node), end);
}

void FleetModel::Flush(Node* node) {
  std::vector<std::pair<Outgoing, Extent>> unsent;
  unsent.swap(node->unsent);
  node->unsent_bytes = 0;
  for (auto& [outgoing, extent] : unsent) Send(node, std::move(outgoing), extent);
}

void FleetModel::Read(Node* node) {
  if (node->reading || !begun_ || !node->trainer->WantsRead()) return;
  node->reading = true;
  const Amount batch{1, double(workload_->batch_rows())};
  const double ns = options_.free ? 0 : costs_[Work::kRead](batch) + costs_[Work::kPlan](batch);
  node->reader->Run(ns * Slow(*node), [this, node] {
    node->reading = false;
    node->trainer->OnRead();
    node->wants_turn = true;
    Read(node);
    Pump(node);
  });
}

void FleetModel::Send(Node* from, Outgoing outgoing, const Extent& extent) {
  if (over_) return;
  const Peer me = from->is_worker                 ? PeerOf(*from)
                  : outgoing.to == kSchedulerPeer ? PeerOf(*from)
                                                  : ShardPeer(ShardId(from->index));
  if (outgoing.to == kSchedulerPeer) {
    events_.At(events_.now(),
               [this, me, message = std::move(outgoing.message)]() mutable { ToScheduler(me, std::move(message)); });
    return;
  }
  Node* to = from->is_worker ? nodes_[outgoing.to.value - ShardPeer(ShardId(0)).value].get() : &NodeOf(outgoing.to);
  if (began_ns_ > 0) {
    messages_ += extent.copies;
    bytes_ += extent.bytes;
    const Body& body = outgoing.message.body;
    if (std::holds_alternative<Tick>(body) || std::holds_alternative<TickAck>(body)) ticks_ += extent.copies;
  }
  auto arrived = std::make_shared<Arrived>(me, std::move(outgoing.message), extent);
  const double out_ns = message_costs_.Of(from->is_worker, Work::kIoSend, extent.AsBytes()) * Slow(*from);
  const double in_ns = message_costs_.Of(to->is_worker, Work::kIoReceive, extent.AsBytes()) * Slow(*to);
  if (options_.cores != 0) {
    const Ns latency = options_.free ? 0 : static_cast<Ns>(costs_.local_latency_ns);
    from->io->Run(out_ns, [this, to, arrived, in_ns, latency] {
      events_.At(events_.now() + latency, [this, to, arrived, in_ns] {
        to->io->Run(in_ns, [this, to, arrived] { Deliver(to, std::move(*arrived)); });
      });
    });
    return;
  }
  const double per_byte =
      options_.free || options_.network.gbit_per_second <= 0 ? 0 : 8 / options_.network.gbit_per_second;
  const double out_bytes = extent.bytes * (from->is_worker ? 1 : extent.part);
  const double in_bytes = extent.bytes * (to->is_worker ? 1 : extent.part);
  const double ready = from->io->Reserve(double(events_.now()), out_ns);
  const double sent = from->out_wire.Pass(ready, out_bytes, per_byte);
  from->out_wire_ns += out_bytes * per_byte;
  to->in_wire_ns += in_bytes * per_byte;
  const double latency = options_.free ? 0 : options_.network.latency_us * 1000;
  // Its first byte comes in while the last ones still go out.
  const double first = std::max(ready, sent - out_bytes * per_byte) + latency;
  events_.At(std::llround(first), [this, to, arrived, in_ns, in_bytes, per_byte] {
    const double in = to->in_wire.Pass(double(events_.now()), in_bytes, per_byte);
    const double done = to->io->Reserve(in, in_ns);
    events_.At(std::llround(done), [this, to, arrived] { Deliver(to, std::move(*arrived)); });
  });
}

FleetModel::Busy FleetModel::BusyOf(const Node& node) const {
  return {node.compute_ns, node.main->busy_ns(), node.io->busy_ns(), node.out_wire_ns, node.in_wire_ns};
}

// The clocks that count begin and end with a batch.
void FleetModel::OnBatch() {
  ++batches_;
  if (began_ns_ == 0 && batches_ >= std::uint64_t{options_.workers} * options_.warm_up) {
    began_ns_ = double(events_.now());
    for (const auto& node : nodes_) at_begin_.push_back(BusyOf(*node));
  }
  if (batches_ < std::uint64_t{options_.workers} * (options_.warm_up + options_.clocks)) return;
  ended_ns_ = double(events_.now());
  over_ = true;
}

FleetResult FleetModel::Summarize() {
  FleetResult r;
  const double seconds = (ended_ns_ - began_ns_) * 1e-9;
  const double ns = ended_ns_ - began_ns_;
  r.clock_seconds = seconds / options_.clocks;
  r.samples_per_second = double(options_.workers) * workload_->batch_rows() / r.clock_seconds;
  r.batch_seconds = costs_[Work::kCompute]({1, double(workload_->batch_rows())}) * 1e-9;
  std::uint64_t pulls = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    const Busy busy = BusyOf(node), before = at_begin_[i];
    const double main = (busy.main - before.main) / ns, io = (busy.io - before.io) / ns;
    const double out = busy.out_wire - before.out_wire, in = busy.in_wire - before.in_wire;
    r.link_busiest = std::max({r.link_busiest, out / ns, in / ns});
    if (node.is_worker) {
      const double compute = (busy.compute - before.compute) / ns;
      r.worker_compute += compute / options_.workers;
      r.worker_messages += (main - compute) / options_.workers;
      r.worker_io += io / options_.workers;
      r.repeats += node.trainer->client().counters().repeats;
      const auto& staleness = node.trainer->client().staleness();
      for (std::size_t s = 0; s < staleness.size(); ++s) {
        r.staleness_mean += double(s) * double(staleness[s]);
        pulls += staleness[s];
      }
    } else {
      r.server_busy += main / shards_;
      r.server_io += io / shards_;
      r.server_busiest = std::max(r.server_busiest, main);
      const server::ShardCounters& c = node.shard->counters();
      r.refused += c.refused_epoch + c.refused_fenced + c.refused_other;
    }
  }
  r.worker_waits = std::max(0.0, 1 - r.worker_compute - r.worker_messages);
  if (pulls > 0) r.staleness_mean /= double(pulls);
  r.messages_per_clock = messages_ / options_.clocks;
  r.tick_messages_per_clock = ticks_ / options_.clocks;
  r.bytes_per_clock = bytes_ / options_.clocks;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  r.peak_gib = double(usage.ru_maxrss) / (1 << 20);
  r.wall_seconds = SecondsSince(started_);
  r.events = events_.executed();
  r.scheduler_us = scheduler_messages_ > 0 ? scheduler_seconds_ / scheduler_messages_ * 1e6 : 0;
  return r;
}

}  // namespace

FleetResult RunFleet(const Job& job, const FleetOptions& options, const Costs& costs, Workload* workload,
                     Meter* meter) {
  FleetModel fleet(job, options, costs, workload, meter);
  return fleet.Run();
}

}  // namespace tarn::scale
