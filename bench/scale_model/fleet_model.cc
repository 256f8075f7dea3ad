#include "bench/scale_model/fleet_model.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "bench/scale_model/links.h"
#include "bench/scale_model/machine.h"
#include "bench/scale_model/measured_clocks.h"
#include "bench/scale_model/message_costs.h"
#include "bench/scale_model/model_nodes.h"
#include "bench/scale_model/scheduler_model.h"
#include "bench/scale_model/stopwatch.h"
#include "server/shard/shard_step.h"

namespace tarn::scale {
namespace {

// As kMessagesPerTurn (server/loop.cc) and kReceiveMax (worker/runtime/runtime.cc).
constexpr std::size_t kTurnMessages = 256;
constexpr auto kFlushBytes = double(server::ShardStep::kFlushBytes);
constexpr Ns kTimerNs = 50'000'000;  // period of timer checks
// A run with more simulated time than this is stuck.
constexpr Ns kStuckNs = Ns{1'200'000'000'000};

class FleetModel {
 public:
  FleetModel(const Job& job, const FleetOptions& options, const Costs& costs, const Workloads& workloads, Meter* meter);
  FleetResult Run();

 private:
  using Node = ModelNode;

  TimeUs NowUs() const { return events_.now() / 1000; }
  void SetUp();
  void RunUntil(const char* stuck, bool (MeasuredClocks::*done)() const);
  void PrintProgress();
  FleetResult Summarize() const;

  // Runs the node's timer if it is due, now and every kTimerNs.
  void RunTimer(Node* node);
  void Deliver(Node* node, std::vector<Arrived> arrived);
  // Runs the next work of the node's main thread, if it is idle.
  void Pump(Node* node);
  void HandleMessage(Node* node);
  // Handles a message, with its answers in `out`. Returns the cost in addition to MessageCosts::In.
  double DeliverToWorker(Node* node, Arrived arrived, Outbox* out);
  double DeliverToShard(Node* node, Arrived arrived, Outbox* out);
  void Compute(Node* node);
  void TakeTurn(Node* node);
  // Occupies the node's main thread for `ns` and the cost of making and encoding `out`. With `flush` then sends the
  // unsent messages. A shard also sends them as soon as they have kFlushBytes.
  void EndStep(Node* node, Outbox* out, double ns, const Extent* asked, bool flush);
  // Work of a step for `ns`, with its messages, and whether all unsent ones are sent after it.
  struct StepPart {
    double ns = 0;
    std::vector<std::pair<Outgoing, Extent>> messages;
    bool flush = false;
  };
  // Runs the parts of a step from `next` on, one after the other, then the node's next work.
  void RunParts(Node* node, std::vector<StepPart> parts, std::size_t next);
  void Flush(Node* node);
  void Send(Node* from, std::vector<std::pair<Outgoing, Extent>> messages);
  void Read(Node* node);
  void MeasureWorker(Work work, const Extent& extent);
  void MeasureSettle(const Outbox& out);

  FleetOptions options_;
  const Costs& costs_;
  const MessageCosts message_costs_;
  Workload* workload_;
  Meter* meter_;
  sim::EventQueue events_;
  const Job job_;
  ModelNodes nodes_;
  MeasuredClocks clocks_;
  SchedulerModel scheduler_;
  Links links_;
  Stopwatch since_start_, since_progress_;
};

FleetModel::FleetModel(const Job& job, const FleetOptions& options, const Costs& costs, const Workloads& workloads,
                       Meter* meter)
    : options_(options),
      costs_(costs),
      message_costs_(job, options, costs, workloads.usual),
      workload_(workloads.usual),
      meter_(meter),
      job_(ModelJob(job, options, *workloads.usual)),
      nodes_(job_, &options_, &costs_, workloads, meter, &events_),
      clocks_(&options_, &nodes_, &events_),
      scheduler_(job_, &events_,
                 {.deliver =
                      [this](Peer to, Message message) {
                        std::vector<Arrived> arrived;
                        arrived.push_back({kSchedulerPeer, std::move(message), Extent{}});
                        Deliver(&nodes_.At(to), std::move(arrived));
                      },
                  .worker_at =
                      [this](Peer peer) {
                        const Node& node = nodes_.At(peer);
                        return node.is_worker ? std::optional(WorkerRank(node.index)) : std::nullopt;
                      }}),
      links_(&options_, &costs_, &message_costs_, &nodes_, &events_,
             [this](Node* to, std::vector<Arrived> arrived) { Deliver(to, std::move(arrived)); }) {}

void FleetModel::MeasureWorker(Work work, const Extent& extent) {
  const Amount amount{1, extent.rows, extent.dense, double(options_.servers), extent.tables};
  const Sample sample{amount, meter_->Lap()};
  if (clocks_.begun() && work != Work::kCount) meter_->Add(work, sample);
}

// Records the time of Settle: as kSettle if it sent nothing, as kTick if it sent only ticks.
void FleetModel::MeasureSettle(const Outbox& out) {
  const double ns = meter_->Lap();
  if (!clocks_.begun()) return;
  if (out.empty())
    meter_->Add(Work::kSettle, {{.messages = 1, .other = double(options_.servers)}, ns});
  else if (std::ranges::all_of(out, [](const Outgoing& o) { return std::holds_alternative<Tick>(o.message.body); }))
    meter_->Add(Work::kTick, {{.messages = double(out.size())}, ns});
}

void FleetModel::RunUntil(const char* stuck, bool (MeasuredClocks::*done)() const) {
  while (!(clocks_.*done)()) {
    TARN_CHECK(events_.RunOne() && events_.now() < kStuckNs, stuck);
    PrintProgress();
  }
}

void FleetModel::SetUp() {
  scheduler_.Start();
  for (const auto& node : nodes_.all()) {
    Outbox out;
    if (node->is_worker)
      node->trainer->Start(NowUs(), &out);
    else
      node->shard->Start(NowUs(), &out);
    EndStep(node.get(), &out, 0, nullptr, true);
    RunTimer(node.get());
  }
  RunUntil("the simulated fleet does not become ready", &MeasuredClocks::all_ready);
  clocks_.Begin();
  for (const auto& node : nodes_.all()) {
    if (!node->is_worker) continue;
    node->trainer->Begin();
    node->wants_turn = true;
    events_.At(events_.now(), [this, n = node.get()] { Pump(n); });
  }
}

FleetResult FleetModel::Run() {
  SetUp();
  RunUntil("the simulated fleet is stuck", &MeasuredClocks::over);
  return Summarize();
}

void FleetModel::PrintProgress() {
  if (options_.progress_seconds <= 0 || events_.executed() % 4096 != 0 ||
      since_progress_.seconds() < options_.progress_seconds)
    return;
  since_progress_.Restart();
  const std::string what = clocks_.begun()
                               ? fmt::format("clock {:.1f} of {}", clocks_.clocks(), options_.warm_up + options_.clocks)
                               : fmt::format("{} workers ready", clocks_.ready());
  fmt::print(stderr, "scale_model: {} workers, {} servers: {}, {:.0f} s\n", options_.workers, options_.servers, what,
             since_start_.seconds());
}

void FleetModel::RunTimer(Node* node) {
  Outbox out;
  const TimeUs now = NowUs();
  if (node->is_worker) {
    if (now >= node->trainer->client().NextTimer()) node->trainer->OnTimer(now, &out);
  } else if (now >= node->shard->NextTimer()) {
    node->shard->OnTimer(now, &out);
  }
  std::vector<std::pair<Outgoing, Extent>> messages;
  for (Outgoing& o : out) {
    const Extent extent = message_costs_.ExtentOf(o.message, ModelNodes::ShardOf(*node, o.to), nullptr);
    messages.emplace_back(std::move(o), extent);
  }
  Send(node, std::move(messages));
  events_.At(events_.now() + kTimerNs, [this, node] { RunTimer(node); });
}

void FleetModel::Deliver(Node* node, std::vector<Arrived> arrived) {
  if (clocks_.over()) return;
  for (Arrived& each : arrived) node->inbox.push_back(std::move(each));
  Pump(node);
}

void FleetModel::Pump(Node* node) {
  if (node->busy) return;
  const bool ready = clocks_.begun() && node->is_worker && node->trainer->FrontReady();
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
  double ns = arrived.from == kSchedulerPeer || !clocks_.begun()
                  ? 0
                  : arrived.frame_ns + message_costs_.In(node->is_worker, arrived.message.body, arrived.extent);
  Outbox out;
  const Extent extent = arrived.extent;
  ns += node->is_worker ? DeliverToWorker(node, std::move(arrived), &out)
                        : DeliverToShard(node, std::move(arrived), &out);
  EndStep(node, &out, ns, &extent, node->turn_left == 0);
}

double FleetModel::DeliverToShard(Node* node, Arrived arrived, Outbox* out) {
  return node->work->Step(std::move(arrived.message), arrived.extent, clocks_.begun(), out, [&](Message message) {
    node->shard->OnMessage(arrived.from, std::move(message), NowUs(), out);
  });
}

// The client settles once per turn. If the simulated messages of a turn represent more than kTurnMessages real ones,
// the cost of settling is that of as many turns as the real fleet would need.
double FleetModel::DeliverToWorker(Node* node, Arrived arrived, Outbox* out) {
  if (arrived.from != kSchedulerPeer) node->turn_copies += arrived.extent.copies;
  const Work work = WorkOfAnswer(arrived.message.body);
  if (meter_ != nullptr) meter_->Begin();
  node->trainer->Handle(arrived.from, std::move(arrived.message), NowUs());
  if (meter_ != nullptr) MeasureWorker(work, arrived.extent);
  if (node->turn_left > 0) return 0;
  if (meter_ != nullptr) meter_->Begin();
  node->trainer->Settle(NowUs(), out);
  if (meter_ != nullptr) MeasureSettle(*out);
  const double turns = std::ceil(std::exchange(node->turn_copies, 0) / double(kTurnMessages));
  node->trainer->Turn(NowUs(), out);
  if (!clocks_.begun() && node->trainer->ready() && !std::exchange(node->was_ready, true)) clocks_.OnReady();
  return clocks_.begun() ? message_costs_.Of(node->is_worker, Work::kSettle, {.copies = turns}) : 0;
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
  const double ns = nodes_.Slow(*node) * costs_[Work::kCompute]({1, double(node->trainer->batch_rows())});
  node->compute_ns += ns;
  node->machine.main->Run(ns, [this, node] {
    Outbox out;
    node->trainer->OnComputed(NowUs(), &out);
    clocks_.OnBatch();
    node->trainer->Turn(NowUs(), &out);
    node->busy = false;
    EndStep(node, &out, 0, nullptr, true);
  });
}

void FleetModel::EndStep(Node* node, Outbox* out, double ns, const Extent* asked, bool flush) {
  std::vector<StepPart> parts(1);
  parts.back().ns = ns;
  for (Outgoing& o : *out) {
    StepPart* part = &parts.back();
    const Extent extent = message_costs_.ExtentOf(o.message, ModelNodes::ShardOf(*node, o.to), asked);
    if (clocks_.begun() && o.to != kSchedulerPeer)
      part->ns += message_costs_.Out(node->is_worker, o.message.body, extent);
    node->unsent_bytes += extent.payload * extent.part;
    part->messages.emplace_back(std::move(o), extent);
    if (node->is_worker || node->unsent_bytes < kFlushBytes) continue;
    part->flush = true;
    node->unsent_bytes = 0;
    parts.emplace_back();
  }
  if (parts.size() > 1 && parts.back().messages.empty()) parts.pop_back();
  if (flush) {
    parts.back().flush = true;
    node->unsent_bytes = 0;
  }
  if (node->is_worker) Read(node);
  RunParts(node, std::move(parts), 0);
}

void FleetModel::RunParts(Node* node, std::vector<StepPart> parts, std::size_t next) {
  if (next == parts.size()) {
    node->busy = false;
    return Pump(node);
  }
  const double ns = parts[next].ns;
  auto end = [this, node, parts = std::move(parts), next]() mutable {
    for (auto& message : parts[next].messages) node->unsent.push_back(std::move(message));
    if (parts[next].flush) Flush(node);
    RunParts(node, std::move(parts), next + 1);
  };
  if (ns <= 0 && !clocks_.begun()) return end();
  node->busy = true;
  node->machine.main->Run(ns * nodes_.Slow(*node), std::move(end));
}

void FleetModel::Flush(Node* node) {
  std::vector<std::pair<Outgoing, Extent>> unsent;
  unsent.swap(node->unsent);
  Send(node, std::move(unsent));
}

void FleetModel::Read(Node* node) {
  if (node->reading || !clocks_.begun() || !node->trainer->WantsRead()) return;
  node->reading = true;
  const Amount batch{1, double(node->trainer->batch_rows())};
  const double ns = options_.free ? 0 : costs_[Work::kRead](batch) + costs_[Work::kPlan](batch);
  node->machine.reader->Run(ns * nodes_.Slow(*node), [this, node] {
    node->reading = false;
    node->trainer->OnRead();
    node->wants_turn = true;
    Read(node);
    Pump(node);
  });
}

void FleetModel::Send(Node* from, std::vector<std::pair<Outgoing, Extent>> messages) {
  if (clocks_.over()) return;
  std::vector<std::pair<Outgoing, Extent>> to_nodes;
  for (auto& [outgoing, extent] : messages) {
    if (outgoing.to != kSchedulerPeer) {
      to_nodes.emplace_back(std::move(outgoing), extent);
      continue;
    }
    events_.At(events_.now(), [this, me = nodes_.PeerOf(*from), message = std::move(outgoing.message)]() mutable {
      scheduler_.Handle(me, std::move(message));
    });
  }
  links_.Send(from, std::move(to_nodes), clocks_.counting());
}

FleetResult FleetModel::Summarize() const {
  FleetResult r;
  clocks_.AddTo(&r);
  double rows = 0;
  for (const auto& node : nodes_.all()) rows += node->is_worker ? node->trainer->batch_rows() : 0;
  r.samples_per_second = rows / r.clock_seconds;
  r.batch_seconds = costs_[Work::kCompute]({1, double(workload_->batch_rows())}) * 1e-9;
  r.messages_per_clock = links_.counters().messages / options_.clocks;
  r.frames_per_clock = links_.counters().frames / options_.clocks;
  r.tick_messages_per_clock = links_.counters().ticks / options_.clocks;
  r.bytes_per_clock = links_.counters().bytes / options_.clocks;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  r.peak_gib = double(usage.ru_maxrss) / (1 << 20);
  r.wall_seconds = since_start_.seconds();
  r.events = events_.executed();
  r.scheduler_us = scheduler_.us_per_message();
  return r;
}

}  // namespace

FleetResult RunFleet(const Job& job, const FleetOptions& options, const Costs& costs, Workload* workload, Meter* meter,
                     Workload* slow_workload) {
  FleetModel fleet(job, options, costs, {workload, slow_workload != nullptr ? slow_workload : workload}, meter);
  return fleet.Run();
}

}  // namespace tarn::scale
