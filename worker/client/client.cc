#include "worker/client/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/hash.h"
#include "worker/client/client_blob.h"
#include "worker/client/client_context.h"
#include "worker/client/client_control.h"
#include "worker/client/client_data.h"

namespace tarn::worker {

class Client::Impl {
 public:
  explicit Impl(ClientOptions options) : context(std::move(options)) {}

  // Every public call that sends runs `action` as a step, which ends by sending all messages that are now possible.
  template <typename Action>
  void Step(TimeUs now, Outbox* out, const Action& action) {
    context.Begin(now);
    context.out = out;
    std::ranges::move(answers, std::back_inserter(*out));
    answers.clear();
    action();
    Dispatch();
    context.out = nullptr;
  }

  // Whether requests are accepted: the worker has joined and, in a resumed run, has fetched its state.
  bool ready() const { return context.running() && blob.restored(); }
  Error NotReady() const;  // why requests are not accepted
  Error WhyEnded() const;
  bool idle() const { return data.idle() && control.idle() && blob.idle(); }

  void Dispatch();
  bool PushesSeparately() const;
  bool Undecided() const;
  void FromScheduler(Message message);
  void FromShard(ShardId shard, const Message& message);
  void OnShutdown(const Shutdown& shutdown);
  void OnWelcome(const Message& message, const Welcome& welcome);
  void OnView(const View& view);

  ClientContext context;
  ClientData data{&context};
  ClientControl control{&context, data.ticks()};
  ClientBlob blob{&context, data.residuals()};
  Outbox answers;  // to messages received since the last step
  bool wants_to_leave = false;
  std::vector<Completion<>*> leave_waiters;
};

Error Client::Impl::NotReady() const {
  if (context.state == ClientState::kJoining || context.running())
    return {
        ErrorCode::kUnavailable,
        "this worker has not joined yet: it waits for the scheduler's welcome, or for its state from the checkpoint"};
  return WhyEnded();
}

Error Client::Impl::WhyEnded() const {
  const auto& [code, reason] = context.stop_reason;
  const bool cancelled = code == ErrorCode::kOk || code == ErrorCode::kTimeout;
  return cancelled ? Error{ErrorCode::kCancelled, "the job is over: " + reason} : Error{code, reason};
}

void Client::Impl::Dispatch() {
  if (context.running()) {
    if (wants_to_leave) data.FailPullsOfLaterClocks();
    data.Dispatch(PushesSeparately());
    blob.Dispatch(data.ticks()->asked(), Undecided());
    if (wants_to_leave && idle()) control.Leave(data.ticks()->acked_position());
  }
  if (context.running() || context.state == ClientState::kJoining) control.Dispatch();
}

// Whether pushes are sent separately, not combined with those of later clocks: before a cut, before evaluation and
// before the end (rule H7).
bool Client::Impl::PushesSeparately() const {
  return wants_to_leave || data.ticks()->bound().open() || context.view.checkpoint.id.value != 0 || control.awaited();
}

// Whether the scheduler may still order a checkpoint of the clock that the program has reached: while the worker waits
// for leases, or for the end of a proposal.
bool Client::Impl::Undecided() const {
  return control.awaits_leases() || data.ticks()->bound().Undecided(data.ticks()->asked());
}

void Client::Impl::FromScheduler(Message message) {
  context.scheduler.OnMessage(context.now);
  Body& body = message.body;
  if (const auto* shutdown = std::get_if<Shutdown>(&body)) {
    OnShutdown(*shutdown);
  } else if (context.state != ClientState::kRunning && context.state != ClientState::kJoining) {
    return;
  } else if (const auto* welcome = std::get_if<Welcome>(&body)) {
    OnWelcome(message, *welcome);
  } else if (!context.running()) {
    return;
  } else if (const auto* update = std::get_if<ViewUpdate>(&body)) {
    OnView(update->view);
  } else if (const auto* table = std::get_if<tarn::CreateTable>(&body)) {
    control.OnCreateTable(*table);
  } else if (const auto* barrier = std::get_if<tarn::Barrier>(&body)) {
    control.OnBarrier(*barrier);
  } else if (auto* leases = std::get_if<LeaseReply>(&body)) {
    control.OnLeaseReply(std::move(*leases));
  } else if (const auto* checkpoint = std::get_if<CheckpointRequest>(&body)) {
    control.OnCheckpointRequest(*checkpoint);
  }
}

// Answers every Shutdown, because the previous answer may have been lost (rule S1). A worker that is fenced or was
// never welcomed does not answer.
void Client::Impl::OnShutdown(const Shutdown& shutdown) {
  context.was_stopped = true;
  if (context.state != ClientState::kStopped && context.state != ClientState::kFenced)
    context.Stop(shutdown.code, shutdown.reason);
  if (context.state == ClientState::kStopped && context.job != 0)
    context.SendToScheduler(Shutdown{ErrorCode::kOk, "understood"});
  if (context.state == ClientState::kStopped && context.stop_reason.code == ErrorCode::kOk)
    for (Completion<>* left : std::exchange(leave_waiters, {})) Complete(left);
}

void Client::Impl::OnWelcome(const Message& message, const Welcome& welcome) {
  if (context.running() || !control.OnWelcome(welcome, message.job)) return;
  data.Begin(welcome.start_clock);
  blob.OnWelcome();
}

void Client::Impl::OnView(const View& view) {
  const Epoch before = context.view.routes.epoch;
  if (!control.OnView(view) || !context.running()) return;
  data.ticks()->AdoptView(blob.MayBeMidClock());
  if (context.view.routes.epoch != before) data.Reroute();
}

void Client::Impl::FromShard(ShardId shard, const Message& message) {
  context.shard_messages[shard.value] = context.now;
  const Body& body = message.body;
  const auto* error = std::get_if<ErrorReply>(&body);
  if (error != nullptr && error->code == ErrorCode::kFenced &&
      (error->request.value == 0 || context.IsOurs(error->request))) {
    // A leaving worker is fenced at the end, and shards may receive its repeated messages after that.
    if (!control.leaving()) context.Stop(error->code, error->message);
  } else if (data.OnMessage(shard, message)) {
    return;
  } else if (const auto* blob_ack = std::get_if<PutBlobAck>(&body)) {
    blob.OnAck(shard, *blob_ack);
  } else if (const auto* piece = std::get_if<BlobPiece>(&body)) {
    blob.OnPiece(shard, *piece, message.values);
  }
}

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;

void Client::Start(TimeUs now, Outbox* out) {
  impl_->Step(now, out, [&] {
    impl_->context.scheduler.Begin(now);
    impl_->control.Join();
  });
}

void Client::Handle(Peer from, Message&& message, TimeUs now) {
  ClientContext& context = impl_->context;
  context.Begin(now);
  if (context.job != 0 && message.job != context.job && message.job != 0) return;
  context.out = &impl_->answers;
  if (from == kSchedulerPeer)
    impl_->FromScheduler(std::move(message));
  else if (context.running() && from.value >= 1 && from.value <= context.shards())
    impl_->FromShard(ShardId(static_cast<std::uint32_t>(from.value - 1)), message);
  context.out = nullptr;
}

void Client::Settle(TimeUs now, Outbox* out) {
  impl_->Step(now, out, [] {});
}

void Client::OnTimer(TimeUs now, Outbox* out) {
  impl_->Step(now, out, [&] {
    if (!impl_->context.running()) return;
    impl_->data.OnTimer();
    impl_->blob.OnTimer();
  });
}

TimeUs Client::NextTimer() const {
  const ClientState now = state();
  if (now != ClientState::kRunning && now != ClientState::kJoining) return kNever;
  return std::min({impl_->data.NextTimer(), impl_->blob.NextTimer(), impl_->control.NextTimer()});
}

void Client::Pull(std::span<const TableToPull> tables, TimeUs now, Outbox* out) {
  if (impl_->ready()) return impl_->Step(now, out, [&] { impl_->data.Pull(tables); });
  for (const TableToPull& table : tables) table.sink->Failed(impl_->NotReady());
}

void Client::CountPull(std::uint64_t staleness) {
  ++impl_->context.counters.pulls;
  impl_->context.CountStaleness(staleness);
}

void Client::NoteCached(const Plan& plan, Clock use, Clock oldest) {
  if (impl_->ready()) impl_->data.NoteCached(plan, use, oldest);
}

void Client::Push(std::span<const TableToPush> tables, Clock pulled_clock, TimeUs now, Outbox* out) {
  if (impl_->ready()) return impl_->Step(now, out, [&] { impl_->data.Push(tables, pulled_clock); });
  for (const TableToPush& table : tables) worker::Fail(table.done, impl_->NotReady());
}

void Client::Push(const Plan& plan, PushAction action, Buffer values, Completion<>* done, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] { impl_->data.Change(plan, action, values, done); });
}

void Client::Prefetch(const Plan& plan, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return;
  impl_->Step(now, out, [&] { impl_->data.Prefetch(plan); });
}

void Client::DropCachedRows() { impl_->data.DropCachedRows(); }

void Client::TickTo(Clock clock, const MaybePosition& position, Completion<>* done, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] { impl_->data.TickTo(clock, position, done); });
}

void Client::CreateTable(const TableSpec& spec, Completion<TableSpec>* done, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] { impl_->control.CreateTable(spec, done); });
}

void Client::FindTable(const std::string& name, Completion<TableSpec>* done) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->control.FindTable(name, done);
}

void Client::Barrier(Completion<>* done, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] {
    impl_->data.FlushPushes();
    impl_->control.Barrier(done);
  });
}

void Client::RequestLeases(LeaseRequest request, Completion<LeaseReply>* done, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] { impl_->control.RequestLeases(std::move(request), done); });
}

void Client::RequestCheckpoint(Completion<std::string>* done, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] { impl_->control.RequestCheckpoint(done); });
}

void Client::KeepState(TimeUs now, Outbox* out) {
  impl_->Step(now, out, [&] {
    if (impl_->context.job_file.consistency.backup_workers != 0)
      return impl_->context.Stop(
          ErrorCode::kUnsupported,
          fmt::format("consistency.backup_workers = {} with state of a program in checkpoints: a "
                      "worker may skip the clock of a checkpoint, of which there is then no "
                      "state; expected backup_workers = 0",
                      impl_->context.job_file.consistency.backup_workers));
    impl_->blob.KeepState();
    impl_->control.KeepState();
  });
}

void Client::AwaitSave(Completion<CheckpointId>* done, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] {
    impl_->blob.AwaitSave(done);
    impl_->data.ticks()->OnRest();
  });
}

void Client::Save(CheckpointId checkpoint, Expected<std::vector<Buffer>> chunks, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return;
  impl_->Step(now, out, [&] { impl_->blob.Save(checkpoint, std::move(chunks), impl_->data.ticks()->asked()); });
}

void Client::ReadBlobOf(WorkerRank rank, Completion<Buffer>* done, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] { impl_->blob.Read(rank, done); });
}

void Client::Leave(Completion<>* done, TimeUs now, Outbox* out) {
  if (!impl_->context.running()) return worker::Fail(done, impl_->NotReady());
  impl_->Step(now, out, [&] {
    impl_->wants_to_leave = true;
    if (done != nullptr) impl_->leave_waiters.push_back(done);
  });
}

void Client::FailAll(const Error& error) {
  impl_->data.FailAll(error);
  impl_->control.FailAll(error);
  impl_->blob.FailAll(error);
  for (Completion<>* left : std::exchange(impl_->leave_waiters, {})) worker::Fail(left, error);
}

ClientState Client::state() const {
  return impl_->context.running() && !impl_->ready() ? ClientState::kJoining : impl_->context.state;
}
const Shutdown& Client::stop_reason() const { return impl_->context.stop_reason; }
bool Client::ended_by_error() const { return state() == ClientState::kStopped && !impl_->context.was_stopped; }

Error Client::WhyEnded() const { return impl_->WhyEnded(); }
const SchedulerContact& Client::scheduler() const { return impl_->context.scheduler; }
ShardWaits Client::WaitsFor(ShardId shard) const {
  ShardWaits waits = impl_->data.WaitsFor(shard);
  const auto& messages = impl_->context.shard_messages;
  if (shard.value < messages.size()) waits.last_message = messages[shard.value];
  waits.state = impl_->blob.WaitsFor(shard);
  return waits;
}
const View& Client::view() const { return impl_->context.view; }
const Welcome& Client::welcome() const { return impl_->context.welcome; }
const Job& Client::job_file() const { return impl_->context.job_file; }
std::uint64_t Client::job() const { return impl_->context.job; }
Clock Client::clock() const { return impl_->data.ticks()->asked(); }
Clock Client::acked_clock() const { return impl_->data.ticks()->acked(); }

const ClientCounters& Client::counters() const { return impl_->context.counters; }
const std::vector<std::uint64_t>& Client::staleness() const { return impl_->context.staleness; }
void Client::SetMetrics(MetricList metrics) { impl_->control.SetMetrics(std::move(metrics)); }
bool Client::idle() const { return impl_->idle(); }
std::size_t Client::pending_bytes() const { return impl_->data.pending_bytes(); }

std::uint64_t Client::StateHash() const {
  const ClientContext& context = impl_->context;
  std::uint64_t hash = HashCombine(static_cast<std::uint64_t>(context.state), context.view.version.value);
  hash = HashCombine(hash, context.welcome.incarnation.value);
  return HashCombine(HashCombine(hash, impl_->data.Hash()), HashCombine(impl_->blob.Hash(), impl_->control.Hash()));
}

}  // namespace tarn::worker
