#include "sim/fleet/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/store/store.h"
#include "sim/fleet/checkpoint_checks.h"

namespace tarn::sim {
namespace {

// Maximum simulated time of a run after the last fault; beyond this it counts as stuck.
constexpr TimeUs kSettleUs = 600'000'000;
constexpr TimeUs kRestartUs = 50'000;

}  // namespace

Fleet::Fleet(const Scenario& scenario, SimDisk* disk, const ResumePoint* resume, bool verbose)
    : resume_(resume != nullptr ? std::optional(*resume) : std::nullopt),
      context_(scenario, disk, this, resume_.has_value(), verbose,
               [this](ProcessId to, Peer from, Message message) { delivery_.Deliver(to, from, std::move(message)); }),
      store_(MakeSchedulerStore(context_)),
      checks_(context_),
      faults_(context_),
      logs_(context_, [this] { outages_.OnMoment(Outages::Moment::kRecovered); }),
      outages_(context_, &logs_, &faults_, &store_),
      deaths_(context_, &logs_, &outages_),
      starter_(context_, &logs_, &faults_, &store_, &resume_),
      delivery_(context_, &checks_, &outages_) {}

void Fleet::StartAll() {
  store_.Started();
  seen_.sent_view = {};
  const bool continues = starter_.StartScheduler();
  seen_.residuals_lost |= continues && seen_.residuals;
  Processes& processes = context_.processes;
  processes.shards().clear();
  processes.workers().clear();
  for (std::uint32_t i = 0; i < context_.scenario.shards; ++i) processes.shards().push_back(starter_.StartShard(i));
  for (std::uint32_t i = 0; i < context_.scenario.workers; ++i) processes.workers().push_back(starter_.StartWorker(i));
}

void Fleet::OnAllEnded() {
  checks_.OnAllEnded();
  faults_.OnAllEnded();
  deaths_.OnAllEnded();
  logs_.OnAllEnded();
}

void Fleet::Step(ProcessId id, std::function<void(Process&, Outbox*)> step) {
  Process* process = context_.processes.Find(id);
  if (process == nullptr || process->over) return;
  if (context_.now() < process->paused_until) {  // messages during a pause wait, in order
    context_.events.At(process->paused_until, [this, id, step = std::move(step)] { Step(id, step); });
    return;
  }
  Outbox out;
  context_.flush = [this, id, process, &out] { Flush(id, *process, &out); };
  step(*process, &out);
  // A shard's loop does this in every turn.
  if (process->shard) process->shard->OnLogSynced(context_.clocks.NowOf(*process), &out);
  std::exchange(context_.flush, nullptr)();
  AfterStep(id, *process);
  logs_.AfterStep(id, process);
}

void Fleet::Flush(ProcessId id, const Process& process, Outbox* out) {
  for (Outgoing& o : *out) {
    if (process.shard) checks_.OnShardSent(id, process, o);
    if (process.scheduler) OnSent(o.message);
    context_.network.Send(id, o.to, o.message);
  }
  out->clear();
}

void Fleet::AfterStep(ProcessId id, Process& p) {
  if (p.scheduler) {
    if (p.scheduler->stopping()) store_.Stopping();
    if (p.scheduler->view().version != seen_.view) OnNewView(p.scheduler->view());
  } else if (p.shard) {
    checks_.AfterShardStep(&p);
    if (p.shard->ended())
      p.over = true;
    else if (p.shard->stopped() && !std::exchange(p.stopped, true))
      faults_.OnShardStopped(p);
  } else if (p.worker) {
    AfterWorkerStep(id, p);
  }
  if (!p.over) ArmTimer(id, p);
}

void Fleet::AfterWorkerStep(ProcessId id, Process& p) {
  checks_.AfterWorkerStep(&p);
  ConnectToShards(id, p);
  faults_.AfterWorkerStep(&p);
  const worker::Client& client = p.worker->client();
  seen_.residuals |= client.counters().residual_rows != 0;
  const bool fenced = client.state() == worker::ClientState::kFenced;
  const bool stopped = client.state() == worker::ClientState::kStopped;
  if (fenced || (stopped && client.stop_reason().code != ErrorCode::kOk)) {
    seen_.fenced += fenced ? 1 : 0;
    context_.oracle.cohorts().OnGone(client.welcome().incarnation);
    context_.Trace(fmt::format("worker {} ends: {}", p.rank, client.stop_reason().reason));
    Restart(id, p.rank);
  }
  p.over = fenced || stopped;
}

// A view counts when it is sent; before that, the scheduler may lose it.
void Fleet::OnSent(const Message& message) {
  const auto* welcome = std::get_if<Welcome>(&message.body);
  const auto* update = std::get_if<ViewUpdate>(&message.body);
  if (welcome == nullptr && update == nullptr) return;
  if (welcome != nullptr) CheckListed();
  const View& view = welcome != nullptr ? welcome->view : update->view;
  if (view.version <= seen_.sent_view) return;
  seen_.sent_view = view.version;
  context_.oracle.OnView(view);
}

// Rule N8: all processes are in the list before any node is welcomed.
void Fleet::CheckListed() {
  const Scenario& scenario = context_.scenario;
  const std::size_t expected = scenario.serves_http ? 1 + scenario.job.fleet.servers + scenario.workers : 0;
  if (store_.listed() != expected)
    context_.oracle.Fail(fmt::format("a node was welcomed with {} processes in the list of addresses, expected {}",
                                     store_.listed(), expected));
}

void Fleet::OnNewView(const View& view) {
  faults_.OnNewView();
  seen_.view = view.version;
  if (std::exchange(seen_.whole, view.whole) < view.whole) outages_.OnMoment(Outages::Moment::kWhole);
  if (std::exchange(seen_.order, view.checkpoint.id) < view.checkpoint.id) faults_.OnNewOrder();
}

// Ends the process, and restarts it unless another has replaced it.
void Fleet::Restart(ProcessId id, std::uint32_t rank) {
  context_.events.At(context_.now() + kRestartUs, [this, id, rank] {
    if (!context_.processes.contains(id)) return;
    context_.network.RemoveProcess(id);
    context_.processes.Remove(id);
    ProcessId& place = context_.processes.workers()[rank];
    if (place == id) place = starter_.StartWorker(rank);
  });
}

void Fleet::ConnectToShards(ProcessId id, const Process& p) {
  const worker::Client& client = p.worker->client();
  if (client.view().version.value == 0) return;
  for (std::uint32_t i = 0; i < context_.scenario.shards; ++i) {
    const ProcessId shard = context_.processes.shards()[i];
    if (!context_.network.Connected(id, ShardPeer(ShardId(i))) && context_.processes.contains(shard))
      context_.network.Connect(id, ShardPeer(ShardId(i)), shard, client.job_file().fleet.lanes);
  }
}

void Fleet::ArmTimer(ProcessId id, Process& p) {
  const TimeUs at = context_.clocks.ToFleetTime(p, p.scheduler ? p.scheduler->NextTimer()
                                                   : p.shard   ? p.shard->NextTimer()
                                                               : p.worker->client().NextTimer());
  if (at == p.timer_at) return;
  p.timer_at = at;
  const std::uint64_t version = ++p.timer_version;
  context_.events.At(std::max(at, context_.now() + 1), [this, id, version] {
    Process* armed = context_.processes.Find(id);
    if (armed == nullptr || armed->timer_version != version) return;
    armed->timer_at = -1;
    Step(id, [this](Process& process, Outbox* out) {
      const TimeUs now = context_.clocks.NowOf(process);
      if (process.scheduler) process.scheduler->OnTimer(now, out);
      if (process.shard) process.shard->OnTimer(now, out);
      if (process.worker) process.worker->OnTimer(now, out);
    });
  });
}

void Fleet::Plan() {
  faults_.Plan();
  outages_.Plan();
  logs_.PlanSlowSyncs();
  faults_.PlanTimeJumps();
  deaths_.Plan();
}

void Fleet::RunToTheEnd() {
  // Allows for the scheduler's pause after each failed write of its state, measured by a clock that may be slow.
  const auto limit = [&] {
    return context_.until_us() + kSettleUs + TimeUs(store_.failed_states()) * scheduler::StateGate::kPauseUs * 5 / 4;
  };
  const auto goes_on = [&] {
    const scheduler::Scheduler* scheduler = context_.processes.scheduler();
    return scheduler == nullptr || !scheduler->stopped() || deaths_.ContinuesInPlace(Excused(scheduler->stop_reason()));
  };
  while (!deaths_.over() && goes_on() && !context_.oracle.failed()) {
    if (context_.events.RunOne() && context_.now() <= limit()) continue;
    context_.oracle.Fail("the run did not finish after the last fault:" + Describe());
    break;
  }
  if (context_.processes.scheduler() == nullptr && !deaths_.over()) outages_.ComeBack();
}

bool Fleet::Excused(const Shutdown& reason) const {
  const Scenario& scenario = context_.scenario;
  const auto has = [&](std::string_view text) { return reason.reason.contains(text); };
  const bool io = reason.code == ErrorCode::kIo;
  if (logs_.sync_failed() && io && has("cannot sync")) return true;
  const bool damaged = scenario.faults.damage_tier && reason.code == ErrorCode::kCorrupt;
  const bool tier_full = scenario.faults.fail_tier && io && has("tier: ");
  // Failures of other checkpoints do not end the run (rule K3).
  const bool last_cut = io && (has("(final) could not be written") || has("(stop) could not be written"));
  if (context_.disk.failed_tiers > 0 && (damaged || tier_full)) return true;
  if (context_.disk.failed_writes > 0 && last_cut) return true;
  return reason.code == ErrorCode::kUnavailable && reason.reason.starts_with("shard ") &&
         (faults_.shard_slept() || deaths_.server_died() || checks_.SilencedShard());
}

RunResult Fleet::Run() {
  context_.disk.state = {};  // a separate run in its own directory
  StartAll();
  if (resume_) {
    context_.oracle.ResumeFrom(resume_->manifest, ValuesIn(context_.disk, *resume_));
    TakeBlobs(context_, *resume_);
    seen_.residuals = !resume_->manifest.blobs.empty();
  }
  Plan();
  RunToTheEnd();
  RunResult result;
  CheckResult(&result);
  AddFigures(&result);
  return result;
}

void Fleet::CheckResult(RunResult* result) {
  Oracle& oracle = context_.oracle;
  const scheduler::Scheduler* scheduler = context_.processes.scheduler();
  result->job_failed = deaths_.over() || scheduler->stop_reason().code != ErrorCode::kOk;
  if (!oracle.failed() && !deaths_.over() && result->job_failed && !Excused(scheduler->stop_reason()))
    oracle.Fail("the job failed: " + scheduler->stop_reason().reason);
  // A failed disk, or damaged bytes, may be detected only now.
  const Status readable = ReadEnd(result);
  if (!readable && context_.disk.failed_tiers == 0)
    oracle.Fail("rows cannot be read at the end: " + readable.error().message);
  result->job_failed |= !readable;
  result->failure = oracle.failure();
}

Status Fleet::ReadEnd(RunResult* result) {
  if (!context_.oracle.failed() && !result->job_failed) {
    if (context_.processes.scheduler()->progress().phase == "stopped")
      checks_.CheckStop(result);
    else
      TARN_RETURN_IF_ERROR(checks_.CheckEnd(deaths_.died_early()));
  }
  const auto hash = StateHash();
  if (!hash) return std::unexpected(hash.error());
  result->state_hash = *hash;
  for (ProcessId id : context_.processes.shards()) {
    const Process* shard = context_.processes.Find(id);
    if (shard == nullptr) continue;
    const auto rows = shard->shard->rows().StateHash();
    if (!rows) return std::unexpected(rows.error());
    result->parameters_hash += *rows;
  }
  return {};
}

void Fleet::AddFigures(RunResult* result) const {
  const scheduler::Scheduler* scheduler = context_.processes.scheduler();
  result->seed = context_.scenario.seed;
  result->acked_push_ids = context_.oracle.acked_push_ids();
  result->stalls = store_.stalls();
  result->messages = context_.network.counters().delivered;
  result->faults_fired = context_.network.counters().faults() + result->stalls;
  faults_.AddTo(result);
  logs_.AddTo(result);
  outages_.AddTo(result);
  deaths_.AddTo(result);
  result->events = context_.events.executed();
  for (ProcessId id : context_.processes.shards()) {
    const Process* shard = context_.processes.Find(id);
    const server::Residency* tier = shard != nullptr ? shard->shard->rows().tier() : nullptr;
    if (tier == nullptr) continue;
    result->rows_from_disk += tier->counters().read_waiting + tier->counters().fetched;
    result->waited_for_rows += shard->shard->counters().waited_for_rows;
  }
  result->requests_saved = context_.oracle.requests_saved();
  result->fenced = seen_.fenced;
  if (scheduler != nullptr) result->workers_died = scheduler->progress().workers_died;
  result->bits_fixed = result->workers_died == starter_.died_in_outages() && !seen_.residuals_lost &&
                       context_.processes.AllShardsThere();
  result->simulated_us = context_.now();
}

void Fleet::CheckCheckpoint(const ResumePoint& point) {
  sim::CheckCheckpoint(context_.scenario, context_.disk, point, &context_.oracle);
}

Expected<std::uint64_t> Fleet::StateHash() const {
  std::uint64_t hash = HashCombine(context_.scenario.seed, context_.events.executed());
  for (const auto& [id, p] : context_.processes.all()) {
    hash = HashCombine(hash, id);
    if (p->scheduler) hash = HashCombine(hash, p->scheduler->StateHash());
    if (p->shard) {
      const auto shard = p->shard->StateHash();
      if (!shard) return shard;
      hash = HashCombine(hash, *shard);
    }
    if (p->worker) hash = HashCombine(hash, p->worker->client().StateHash());
  }
  return hash;
}

std::string Fleet::Describe() const {
  std::string text;
  for (const auto& [id, p] : context_.processes.all()) {
    if (p->scheduler) text += fmt::format("\n  scheduler: {}", p->scheduler->progress().phase);
    if (p->shard) text += fmt::format("\n  shard {}: minimum clock {}", p->rank, p->shard->minimum_clock().value);
    if (p->worker) text += fmt::format("\n  worker {}: {}", p->rank, p->worker->Describe());
  }
  return text;
}

}  // namespace tarn::sim
