#include "sim/trial/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "core/hash.h"
#include "kernels/subnormals.h"
#include "net/slow_transport.h"
#include "scheduler/setup.h"

namespace tarn::sim {
namespace {

// While a run is repeated, the gates pass each pull when it was served in the recorded run, so within the bound of its
// table. Ticks come at other times than in that run, so the policy must not predict them (rule C9): the range becomes
// part of the bound.
std::unique_ptr<server::ConsistencyPolicy> MakeRepeated(const TableSpec& spec) {
  TableSpec table = spec;
  table.consistency.staleness = static_cast<std::uint32_t>(StalenessBound(spec.consistency));
  table.consistency.staleness_range = 0;
  return *server::MakePolicy(table);
}
constexpr server::PolicyEntry kRepeatedPolicies[] = {
    {"bsp", MakeRepeated}, {"ssp", MakeRepeated}, {"asp", MakeRepeated}};

constexpr std::uint64_t kTrialSalt = 0x747269616c;
constexpr std::uint64_t kEventsPerCheck = 256;  // between two checks of the replay and of the real clock
constexpr std::chrono::milliseconds kProgressPeriod{250};

std::uint64_t NonceOf(const Job& job, std::size_t node) {
  return HashCombine(HashCombine(job.job.seed, kTrialSalt), node) | 1;
}

// The accepting side's name of a node.
Peer AcceptedPeer(std::size_t node) { return Peer(kFirstAcceptedPeer + node); }
std::size_t NodeOf(Peer accepted) { return accepted.value - kFirstAcceptedPeer; }

Status CheckJob(const Job& job, const TrialOptions& options) {
  if (options.until && scheduler::CutsAtClock(job))
    return Fail(
        ErrorCode::kUnsupported,
        "a table is in mode \"bsp\" or aggregated: a repeated run can be left on the way only where pushes are applied "
        "as they come; expected mode \"asp\", or \"ssp\" with apply = \"immediate\", for all tables");
  if (job.data.train.empty())
    return Fail(
        ErrorCode::kUnsupported,
        "the job names no training file (data.train): simulated time is for the built-in models, not for programs");
  if (job.train.device != "cpu")
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("train.device = \"{}\": simulated time computes on the CPU; expected \"cpu\"", job.train.device));
  return {};
}

Status OpenData(const Job& job, worker::TrainingJob* data) {
  TARN_RETURN_IF_ERROR(data->Begin(ToToml(job), [] {}));
  while (true) {
    const Expected<bool> opened = data->TakeOpened();
    if (!opened) return std::unexpected(opened.error());
    if (*opened) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

Job AsTrial(Job job) {
  job.storage = {};
  job.storage.checkpoint_seconds = 0;
  job.storage.checkpoints_kept = 1;
  return job;
}

Expected<std::unique_ptr<Trial>> Trial::Make(const Job& job, const std::string& run_dir, TrialOptions options) {
  TARN_CHECK(options.files != nullptr, "a trial needs files for its checkpoints");
  TARN_RETURN_IF_ERROR(CheckJob(job, options));
  auto files = RunFiles::Open(job, run_dir);
  if (!files) return std::unexpected(files.error());
  std::unique_ptr<Trial> trial(new Trial(job, *std::move(files), std::move(options)));
  TARN_RETURN_IF_ERROR(OpenData(job, &trial->data_));
  for (std::uint32_t i = 0; i < job.fleet.servers * job.fleet.shards; ++i) trial->MakeShard(i);
  for (std::uint32_t i = 0; i < job.fleet.workers; ++i) trial->MakeWorker(i);
  return trial;
}

// Node 0 is the scheduler; shards and then workers follow.
Trial::Trial(const Job& job, RunFiles files, TrialOptions trial_options)
    : job_(job),
      files_(std::move(files)),
      links_(job, 1 + std::size_t{job.fleet.servers} * job.fleet.shards + job.fleet.workers, &events_),
      checkpoints_(trial_options.files),
      store_(
          checkpoints_, [this](std::function<void()> step) { Soon(std::move(step)); },
          [this](const scheduler::StoreWritten& written) {
            Outbox out;
            scheduler_->OnWritten(written, now(), &out);
            Send(scheduler_node_, &out);
            TurnScheduler();
          }) {
  if (trial_options.recording) replay_.emplace(*std::move(trial_options.recording), trial_options.until);
  scheduler::SchedulerOptions options;
  options.job = job_;
  options.job_text = ToToml(job_);
  options.checkpoints_directory = trial_options.resume.empty() ? "checkpoints" : "continued";
  options.run = NonceOf(job_, 0);
  if (replay_) options.lease_order = replay_->leases();
  if (!trial_options.resume.empty()) {
    options.resume = &checkpoints_->manifests.at(trial_options.resume);
    options.resume_directory = trial_options.resume;
  }
  scheduler_ = std::make_unique<scheduler::Scheduler>(std::move(options), &store_);
}

Trial::~Trial() = default;

void Trial::MakeShard(std::uint32_t index) {
  ShardNode& node = shards_.emplace_back();
  node.number = 1 + index;
  const Later later = [this](std::function<void()> step) { Soon(std::move(step)); };
  node.store = std::make_unique<server::MemoryCheckpointStore>(
      &checkpoints_->rows, ShardId(index), [this, &node](CheckpointPart part) {
        Soon([this, &node, part] {
          StepShard(&node, [&](Outbox* out) { node.shard->OnCheckpointWritten(part, now(), out); });
        });
      });
  node.blobs = std::make_unique<TrialBlobStore>(checkpoints_, later, [this, &node](const server::BlobWritten& written) {
    StepShard(&node, [&](Outbox* out) { node.shard->OnBlobWritten(written, now(), out); });
  });
  server::ShardOptions options;
  options.shard = ShardId(index);
  options.nonce = NonceOf(job_, node.number);
  options.endpoint = fmt::format("trial://shard-{}", index);
  options.shards_per_server = job_.fleet.shards;
  options.blobs = node.blobs.get();
  if (replay_) options.policies = kRepeatedPolicies;
  if (replay_) node.gate = replay_->gate(ShardId(index));
  node.shard = std::make_unique<server::Shard>(options, node.store.get(), node.gate);
}

void Trial::MakeWorker(std::uint32_t rank) {
  worker::ClientOptions options;
  options.rank = rank;
  const std::size_t number = 1 + shards_.size() + rank;
  options.nonce = NonceOf(job_, number);
  WorkerNode& node = workers_.emplace_back(options);
  node.number = number;
  node.loop = std::make_unique<worker::TrainingLoop>(
      worker::TrainingLoop::Context{
          .client = &node.client, .outbox = &node.out, .trace = &node.trace, .record = &node.record, .shared = &data_},
      worker::PipelineOptions{.begins = replay_ ? replay_->begins(WorkerRank(rank)) : nullptr},
      worker::TrainingLoop::Hooks());
}

void Trial::StartAll() {
  scheduler_->Start(now());
  TurnScheduler();
  for (ShardNode& node : shards_) StepShard(&node, [&](Outbox* out) { node.shard->Start(now(), out); });
  for (WorkerNode& node : workers_) {
    node.client.Start(now(), &node.out);
    TurnWorker(&node);
  }
}

Status Trial::Run(const TrialHooks& hooks) {
  StartAll();
  auto reported_at = std::chrono::steady_clock::now();
  while (!scheduler_->stopped() && files_.status()) {
    TARN_CHECK(events_.RunOne(), "a fleet always has a timer");
    if (replay_ && replay_->IsOver(samples_)) LeaveReplay();
    if (events_.executed() % kEventsPerCheck != 0) continue;
    if (replay_) TARN_RETURN_IF_ERROR(replay_->Check(now()));
    const auto real = std::chrono::steady_clock::now();
    if (real - reported_at < kProgressPeriod) continue;
    reported_at = real;
    WatchProgress(hooks);
  }
  return Finish();
}

void Trial::WatchProgress(const TrialHooks& hooks) {
  if (hooks.progress) hooks.progress(scheduler_->progress(), simulated_seconds());
  if (hooks.stops && hooks.stops()) RequestStop();
}

void Trial::RequestStop() {
  if (scheduler_->stopping()) return;
  Outbox out;
  scheduler_->RequestStop(now(), &out);
  Send(scheduler_node_, &out);
  TurnScheduler();
}

// Messages in flight when the run is left are handled in the order of their arrival.
void Trial::LeaveReplay() {
  replay_->Leave();
  for (ShardNode& node : shards_) DeliverHeld(&node);
  for (WorkerNode& node : workers_) PlanTurn(&node);
  RequestStop();
}

Status Trial::Finish() {
  TARN_RETURN_IF_ERROR(files_.status());
  const Shutdown& reason = scheduler_->stop_reason();
  if (replay_) TARN_RETURN_IF_ERROR(replay_->Check(now()));
  if (replay_ && reason.code == ErrorCode::kOk) TARN_RETURN_IF_ERROR(replay_->CheckComplete());
  AddPoint();
  TARN_RETURN_IF_ERROR(files_.End(scheduler_->progress(), reason,
                                  {.simulated_seconds = simulated_seconds(),
                                   .messages = links_.messages(),
                                   .bytes = links_.bytes(),
                                   .events = events_.executed()},
                                  curve_));
  if (reason.code != ErrorCode::kOk) return Fail(reason.code, reason.reason);
  return {};
}

// --- the scheduler: it settles once after all messages of an instant ---

void Trial::DeliverToScheduler(Peer from, Message message) {
  scheduler_->Handle(from, std::move(message), now());
  if (std::exchange(scheduler_node_.turn_planned, true)) return;
  Soon([this] {
    scheduler_node_.turn_planned = false;
    TurnScheduler();
  });
}

void Trial::TurnScheduler() {
  Outbox out;
  scheduler_->Settle(now(), &out);
  if (now() >= scheduler_->NextTimer()) scheduler_->OnTimer(now(), &out);
  (void)scheduler_->TakeNotes();
  Send(scheduler_node_, &out);
  files_.OnProgress(*scheduler_, now());
  Arm(&scheduler_node_, scheduler_->NextTimer(), [this] { TurnScheduler(); });
}

// --- shards ---

void Trial::StepShard(ShardNode* node, const std::function<void(Outbox*)>& step) {
  const kernels::SubnormalsAreZero fast;  // as in a server, for the same bits
  Outbox out;
  step(&out);
  if (now() >= node->shard->NextTimer()) node->shard->OnTimer(now(), &out);
  Send(*node, &out);
  if (!node->shard->ended()) Arm(node, node->shard->NextTimer(), [this, node] { StepShard(node, [](Outbox*) {}); });
}

void Trial::DeliverToShard(ShardNode* node, Peer from, Message message) {
  if (node->gate != nullptr && EffectGate::Concerns(message)) {
    node->gate->Hold(from, std::move(message));
    return DeliverHeld(node);
  }
  StepShard(node, [&](Outbox* out) { node->shard->OnMessage(from, std::move(message), now(), out); });
}

void Trial::DeliverHeld(ShardNode* node) {
  while (auto next = node->gate->TakeNext())
    StepShard(node, [&](Outbox* out) { node->shard->OnMessage(next->from, std::move(next->message), now(), out); });
}

// --- workers: like the scheduler, one turn after all messages of an instant ---

void Trial::DeliverToWorker(WorkerNode* node, Peer from, Message message) {
  node->client.Handle(from, std::move(message), now());
  PlanTurn(node);
}

void Trial::PlanTurn(WorkerNode* node) {
  if (std::exchange(node->turn_planned, true)) return;
  Soon([this, node] {
    node->turn_planned = false;
    TurnWorker(node);
  });
}

void Trial::TurnWorker(WorkerNode* node) {
  worker::Client& client = node->client;
  client.Settle(now(), &node->out);
  if (now() >= client.NextTimer()) client.OnTimer(now(), &node->out);
  while (client.state() == worker::ClientState::kRunning) {
    node->loop->Turn(now());
    if (!node->loop->CanWork(now())) break;
  }
  CountSamples(node);
  Send(*node, &node->out);
  const bool in_fleet =
      client.state() == worker::ClientState::kRunning || client.state() == worker::ClientState::kJoining;
  if (!in_fleet) return;
  const TimeUs due = node->loop->NextDue().value_or(client.NextTimer());
  Arm(node, std::min(due, client.NextTimer()), [this, node] { PlanTurn(node); });
}

void Trial::CountSamples(WorkerNode* node) {
  const std::uint64_t samples = node->loop->counts().samples;
  samples_ += samples - std::exchange(node->samples, samples);
  if (curve_.IsDue(samples_)) AddPoint();
}

void Trial::AddPoint() {
  CurvePoint point{.simulated_seconds = simulated_seconds(), .samples = samples_, .bytes = links_.bytes()};
  for (const WorkerNode& node : workers_) {
    point.loss_sum += node.loop->counts().loss_sum;
    point.loss_rows += node.loop->counts().loss_rows;
  }
  curve_.Add(point, data_.rows()[0] * job_.train.epochs);
}

// --- messages and timers ---

void Trial::Send(const Node& from, Outbox* out) {
  for (Outgoing& outgoing : *out) Deliver(from, std::move(outgoing));
  out->clear();
}

void Trial::Deliver(const Node& from, Outgoing outgoing) {
  const bool accepted = outgoing.to.value >= kFirstAcceptedPeer;
  // Shard i is node 1 + i, and its Peer for nodes that connect to it, ShardPeer(i), is 1 + i too.
  const std::size_t to = accepted ? NodeOf(outgoing.to) : outgoing.to.value;
  // The receiver knows the sender by its node number if it has connected to the sender, else by an accepted peer's
  // number.
  const Peer sender = accepted ? Peer(from.number) : AcceptedPeer(from.number);
  const std::size_t bytes = net::BytesOf(outgoing.message);
  auto message = std::make_shared<Message>(std::move(outgoing.message));
  links_.Send(from.number, to, bytes, [this, to, sender, message] {
    if (to == 0) return DeliverToScheduler(sender, std::move(*message));
    if (to <= shards_.size()) return DeliverToShard(&shards_[to - 1], sender, std::move(*message));
    DeliverToWorker(&workers_[to - 1 - shards_.size()], sender, std::move(*message));
  });
}

void Trial::Arm(Node* node, TimeUs at, std::function<void()> due) {
  at = std::max(at, now());
  if (node->timer_at >= 0 && node->timer_at <= at) return;
  node->timer_at = at;
  events_.At(at, [node, at, due = std::move(due)] {
    if (node->timer_at != at) return;  // an earlier timer has replaced this one
    node->timer_at = -1;
    due();
  });
}

}  // namespace tarn::sim
