#include "worker/client/client_control.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "core/job/job.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kLeaseReportBytes = limits::kHeaderBytesMax / 2;  // of the reports in one request, approximate

// Whether the view is valid for routing and consistent with the previous view of the job.
bool Usable(const View& view, const View& before) {
  const RouteMap& routes = view.routes;
  if (routes.partition_bits > limits::kPartitionBitsMax) return false;
  if (routes.owners.size() != std::size_t{1} << routes.partition_bits) return false;
  for (ShardId owner : routes.owners)
    if (owner.value >= routes.endpoints.size()) return false;
  return before.version.value == 0 || before.routes.owners.size() == routes.owners.size();
}

// Approximate size in a message.
std::size_t BytesOf(const LeaseDone& report) {
  constexpr std::size_t kBucketBytes = sizeof(std::uint16_t) + 2 * sizeof(std::uint32_t);
  return 128 + report.quality.buckets.size() * kBucketBytes;
}

// Moves the first reports that fit in one request out of `reports`; at least one.
std::vector<LeaseDone> TakeReports(std::vector<LeaseDone>* reports) {
  std::size_t bytes = 0, taken = 0;
  while (taken < std::min<std::size_t>(reports->size(), limits::kLeasesPerWorkerMax)) {
    bytes += BytesOf((*reports)[taken]);
    if (taken != 0 && bytes > kLeaseReportBytes) break;
    ++taken;
  }
  const auto end = reports->begin() + static_cast<std::ptrdiff_t>(taken);
  std::vector<LeaseDone> part(std::make_move_iterator(reports->begin()), std::make_move_iterator(end));
  reports->erase(reports->begin(), end);
  return part;
}

}  // namespace

void ClientControl::Join() {
  requests_.Add(tarn::Join{.role = Role::kWorker,
                           .rank = context_->options.rank,
                           .nonce = context_->options.nonce,
                           .protocol_version = limits::kProtocolVersion,
                           .http = context_->options.http,
                           .is_program = context_->options.is_program});
}

bool ClientControl::OnWelcome(const Welcome& welcome, std::uint64_t job) {
  if (welcome.nonce != context_->options.nonce || welcome.incarnation.value == 0) return false;
  if (!Usable(welcome.view, context_->view)) return false;
  auto parsed = ParseJob(welcome.job_text, "the scheduler's job", "/");
  if (!parsed) {
    context_->Stop(parsed.error().code, parsed.error().message);
    return false;
  }
  requests_.Remove<tarn::Join>([](const tarn::Join&) { return true; });
  context_->job = job != 0 ? job : Fingerprint(*parsed);
  context_->job_file = std::move(*parsed);
  context_->scheduler.OnWelcome(static_cast<TimeUs>(context_->job_file.fleet.lease_seconds * 1e6));
  context_->AdoptView(welcome.view);
  context_->welcome = welcome;
  context_->welcome.view = View();  // the view is in context_->view
  context_->state = ClientState::kRunning;
  AdoptTables();
  next_heartbeat_ = context_->now;
  return true;
}

bool ClientControl::OnView(const View& view) {
  if (view.version <= context_->view.version) return false;
  if (!Usable(view, context_->view)) {
    ++context_->counters.malformed;
    return false;
  }
  context_->AdoptView(view);
  AdoptTables();
  next_heartbeat_ = context_->now;
  for (const WorkerEntry& entry : view.workers) {
    if (entry.incarnation != context_->welcome.incarnation || entry.state == WorkerState::kLive || leaving_) continue;
    context_->Stop(ErrorCode::kFenced, "the scheduler has declared this worker dead");
  }
  return true;
}

void ClientControl::AdoptTables() {
  for (const TableSpec& spec : context_->view.tables) {
    context_->tables.insert_or_assign(spec.id, spec);
    const auto [first, last] = finders_.equal_range(spec.name);
    for (auto it = first; it != last; ++it) it->second->Done(spec);
    finders_.erase(first, last);
  }
}

void ClientControl::FindTable(const std::string& name, Completion<TableSpec>* done) {
  const auto there = std::ranges::find(context_->view.tables, name, &TableSpec::name);
  if (there != context_->view.tables.end()) return done->Done(*there);
  finders_.emplace(name, done);
}

void ClientControl::CreateTable(const TableSpec& spec, Completion<TableSpec>* done) {
  if (done != nullptr) creators_.emplace_back(spec, done);
  if (requests_.Find<tarn::CreateTable>([&](const tarn::CreateTable& r) { return r.spec == spec; }) == nullptr)
    requests_.Add(tarn::CreateTable{spec, ErrorCode::kOk, ""});
}

// The answer contains the table's actual spec.
void ClientControl::OnCreateTable(const tarn::CreateTable& answer) {
  const auto as_run = [this](TableSpec spec) {
    spec.id = TableId(0);
    return AsRun(context_->job_file, std::move(spec));
  };
  const TableSpec answered = as_run(answer.spec);
  const auto request =
      requests_.Remove<tarn::CreateTable>([&](const tarn::CreateTable& r) { return as_run(r.spec) == answered; });
  if (!request) return;
  if (answer.code == ErrorCode::kOk) context_->tables.insert_or_assign(answer.spec.id, answer.spec);
  std::erase_if(creators_, [&](const auto& creator) {
    if (creator.first != request->spec) return false;
    if (answer.code == ErrorCode::kOk)
      creator.second->Done(answer.spec);
    else
      creator.second->Failed({answer.code, answer.message});
    return true;
  });
}

void ClientControl::Barrier(Completion<>* done) {
  barrier_waiters_.push_back(done);
  requests_.Add(tarn::Barrier{++barriers_});
}

void ClientControl::OnBarrier(const tarn::Barrier& answer) {
  if (!requests_.Remove<tarn::Barrier>([&](const tarn::Barrier& r) { return r.number == answer.number; })) return;
  Complete(barrier_waiters_.front());
  barrier_waiters_.pop_front();
}

// Reports that do not fit in one message are sent before, in requests for no lease, which the scheduler answers at
// once.
void ClientControl::RequestLeases(LeaseRequest request, Completion<LeaseReply>* done) {
  request.skipped = context_->counters.skipped_clocks;
  std::vector<LeaseDone> reports = std::exchange(request.done, {});
  for (std::vector<LeaseDone> part = TakeReports(&reports);; part = TakeReports(&reports)) {
    const bool last = reports.empty();
    LeaseRequest some = request;
    some.number = ++lease_requests_;
    some.want = last ? request.want : 0;
    some.done = std::move(part);
    requests_.Add(std::move(some));
    lease_waiters_.push_back(last ? done : nullptr);
    if (last) return;
  }
}

void ClientControl::OnLeaseReply(LeaseReply reply) {
  if (!requests_.Remove<LeaseRequest>([&](const LeaseRequest& r) { return r.number == reply.number; })) return;
  if (reply.grants.empty()) awaited_clock_ = reply.jump_to;
  Completion<LeaseReply>* const done = lease_waiters_.front();
  lease_waiters_.pop_front();
  if (done != nullptr) done->Done(std::move(reply));
}

// The number is unique in the whole run, because ids contain the incarnation.
void ClientControl::RequestCheckpoint(Completion<std::string>* done) {
  const std::uint64_t number = context_->NewRequest().value;
  checkpoint_waiters_.emplace(number, done);
  requests_.Add(CheckpointRequest{number, ErrorCode::kOk, {}, {}});
}

void ClientControl::OnCheckpointRequest(const CheckpointRequest& answer) {
  if (answer.code == ErrorCode::kOk && answer.directory.empty()) return;  // not complete yet (rule K8)
  if (!requests_.Remove<CheckpointRequest>([&](const CheckpointRequest& r) { return r.number == answer.number; }))
    return;
  Completion<std::string>* const done = checkpoint_waiters_.extract(answer.number).mapped();
  if (answer.code != ErrorCode::kOk) return Fail(done, {answer.code, answer.message});
  if (done != nullptr) done->Done(answer.directory);
}

void ClientControl::Leave(const DataPosition& position) {
  if (leaving_) return;
  leaving_ = true;
  next_heartbeat_ = context_->now;  // sends the last metrics: those after Leave are not counted
  requests_.Add(tarn::Leave{ticks_->acked(), position});
}

void ClientControl::FailAll(const Error& error) {
  for (const auto& [wanted, done] : std::exchange(creators_, {})) done->Failed(error);
  for (const auto& [name, done] : std::exchange(finders_, {})) done->Failed(error);
  for (Completion<>* done : std::exchange(barrier_waiters_, {})) Fail(done, error);
  for (Completion<LeaseReply>* done : std::exchange(lease_waiters_, {})) Fail(done, error);
  for (const auto& [number, done] : std::exchange(checkpoint_waiters_, {})) Fail(done, error);
}

// Repeats the worker's current part of the checkpoint order, in place of the previous one.
void ClientControl::UpdatePart() {
  const auto& part = ticks_->part();
  const auto any = [](const CheckpointPart&) { return true; };
  const CheckpointPart* const sent = requests_.Find<CheckpointPart>(any);
  if ((part ? part->id : CheckpointId(0)) == (sent != nullptr ? sent->id : CheckpointId(0))) return;
  requests_.Remove<CheckpointPart>(any);
  if (part) requests_.Add(*part);
}

void ClientControl::SendHeartbeat() {
  Heartbeat beat;
  beat.view = context_->view.version;
  beat.proposal = ticks_->bound().id();
  beat.clock = ticks_->reported();
  beat.acked_clock = ticks_->acked();
  beat.position = ticks_->acked_position();
  beat.drained = ticks_->bound().drained();
  beat.keeps_state = keeps_state_;
  beat.skipped = context_->counters.skipped_clocks;
  beat.counters = MetricList().AddFields(kClientMetrics, context_->counters).Append(metrics_).ToCounters();
  beat.staleness = context_->staleness;
  context_->SendToScheduler(std::move(beat));
  next_heartbeat_ = context_->now + context_->heartbeat_us();
}

void ClientControl::Dispatch() {
  UpdatePart();
  // The scheduler waits for this clock: send a heartbeat at once.
  if (awaited_clock_.value != 0 && ticks_->acked() >= awaited_clock_) {
    awaited_clock_ = Clock(0);
    next_heartbeat_ = context_->now;
  }
  if (std::exchange(context_->wants_heartbeat, false)) next_heartbeat_ = context_->now;
  if (context_->running() && next_heartbeat_ <= context_->now) SendHeartbeat();
  context_->counters.repeats += requests_.SendDue(context_->now, context_->options.resend_us,
                                                  [this](const Body& request) { context_->SendToScheduler(request); });
}

TimeUs ClientControl::NextTimer() const {
  return std::min(context_->running() ? next_heartbeat_ : kNever, requests_.NextTimer());
}

std::uint64_t ClientControl::Hash() const {
  std::uint64_t hash = HashCombine(barriers_, lease_requests_);
  hash = requests_.Hash(hash);
  return HashCombine(hash, next_heartbeat_ == kNever ? 0 : next_heartbeat_);
}

}  // namespace tarn::worker
