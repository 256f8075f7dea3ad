#include "worker/client/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "core/hash.h"
#include "worker/client/client_blob.h"
#include "worker/client/client_cache.h"
#include "worker/client/client_control.h"
#include "worker/client/client_desk.h"
#include "worker/client/client_pulls.h"
#include "worker/client/client_pushes.h"
#include "worker/client/client_ticks.h"
#include "worker/client/push_combiner.h"
#include "worker/client/residuals.h"

namespace tarn::worker {

class Client::Impl {
 public:
  explicit Impl(ClientOptions options) : desk(options) {}

  // Every entry goes through a step: afterwards whatever has become possible is sent.
  template <typename Action>
  auto Step(TimeUs now, Outbox* out, Action action) {
    desk.Begin(now);
    desk.out = out;
    std::ranges::move(answers, std::back_inserter(*out));
    answers.clear();
    struct Flush {
      Impl* impl;
      ~Flush() { impl->Dispatch(); }
    } flush{this};
    return action();
  }

  void Dispatch() {
    if (desk.running()) {
      combiner.SetApart(PushesGoApart());
      pushes.Dispatch([this](Clock clock) { return ticks.MayPush(clock); });
      pulls.Dispatch();
      ticks.Dispatch();
      blob.Dispatch(ticks.asked());
      if (wants_to_leave && idle()) control.Leave(ticks.acked_position());
    }
    if (desk.running() || desk.state == ClientState::kJoining) control.Dispatch();
    desk.out = nullptr;
  }

  // Before a cut, before evaluation and before the end nothing waits for pushes of later clocks (rule H7).
  bool PushesGoApart() const {
    return wants_to_leave || ticks.capped() || desk.view.checkpoint.id.value != 0 || control.awaited();
  }

  bool idle() const {
    return combiner.idle() && pushes.idle() && pulls.idle() && ticks.idle() && control.idle() && blob.idle();
  }
  // Requests are taken: what a resumed worker goes on from is there.
  bool ready() const { return desk.running() && blob.restored(); }

  void OnMessage(Peer from, Message message);
  void FromScheduler(Message message);
  void FromShard(ShardId shard, Message message);
  void OnError(ShardId shard, const ErrorReply& error);
  void OnNamelessError(ShardId shard, const ErrorReply& error);
  void OnShutdown(const Shutdown& shutdown);
  void OnWelcome(const Message& message, const Welcome& welcome);
  void OnView(const View& view);

  // The table of a plan, or null and the failure is on its way to the caller.
  const TableSpec* TableOf(const Plan& plan, RequestId* failed);
  RequestId Pull(const Plan& plan, PullWhen when);
  RequestId PullPart(const Plan& plan, PullWhen when);
  RequestId PullThroughCache(KeptTable* kept, const TableSpec& spec, const Plan& plan, PullWhen when);
  void Ask(RequestId pull, const TableSpec& spec, const Plan& plan);
  RequestId Push(const Plan& plan, const Buffer& gradients, const ClientPushes::What& what);
  // Of a push in kTopK: what goes out of it now.
  Residuals::Sent Compress(const Plan& plan, const TableSpec& spec, const Buffer& gradients, Clock clock);
  void Prefetch(const Plan& plan);
  void TickTo(Clock clock, const MaybePosition& position);
  // Whether a push and the pull of the same rows behind it have messages of their own.
  bool GoesApart(const TableSpec& spec) {
    const bool of_other_rows = spec.push_codec == ValueCodec::kTopK && spec.kind == TableKind::kSparse;
    return of_other_rows || combiner.Combines(spec) || cache.Of(spec) != nullptr;
  }

  ClientDesk desk;
  ClientCache cache{&desk};
  ClientPulls pulls{&desk};
  ClientPushes pushes{&desk, &pulls};
  PushCombiner combiner{&desk, &pushes};
  ClientTicks ticks{&desk, &pushes};
  ClientControl control{&desk, &ticks};
  Residuals residuals;
  ClientBlob blob{&desk, &residuals};
  Outbox answers;                      // to what was heard since the last step
  std::map<ShardId, Patience> unread;  // answers of a shard to messages that it could not read
  bool wants_to_leave = false;
};

void Client::Impl::OnMessage(Peer from, Message message) {
  if (desk.job != 0 && message.job != desk.job && message.job != 0) return;
  if (from == kSchedulerPeer) {
    FromScheduler(std::move(message));
  } else if (desk.running() && from.value >= 1 && from.value <= desk.shards()) {
    FromShard(ShardId(static_cast<std::uint32_t>(from.value - 1)), std::move(message));
  }
}

void Client::Impl::FromScheduler(Message message) {
  desk.heard = desk.now;
  Body& body = message.body;
  if (const auto* shutdown = std::get_if<Shutdown>(&body)) {
    OnShutdown(*shutdown);
  } else if (desk.state != ClientState::kRunning && desk.state != ClientState::kJoining) {
    return;
  } else if (const auto* welcome = std::get_if<Welcome>(&body)) {
    OnWelcome(message, *welcome);
  } else if (!desk.running()) {
    return;
  } else if (const auto* update = std::get_if<ViewUpdate>(&body)) {
    OnView(update->view);
  } else if (const auto* table = std::get_if<tarn::CreateTable>(&body)) {
    control.OnCreateTable(*table);
  } else if (const auto* barrier = std::get_if<tarn::Barrier>(&body)) {
    control.OnBarrier(*barrier);
  } else if (auto* leases = std::get_if<LeaseReply>(&body)) {
    control.OnLeaseReply(std::move(*leases));
  }
}

// Understood, also when our word of it was lost (rule S1). Who is fenced or was never welcomed has no say.
void Client::Impl::OnShutdown(const Shutdown& shutdown) {
  if (desk.state != ClientState::kStopped && desk.state != ClientState::kFenced)
    desk.Stop(shutdown.code, shutdown.reason);
  if (desk.state == ClientState::kStopped && desk.job != 0)
    desk.SendToScheduler(Shutdown{ErrorCode::kOk, "understood"});
}

void Client::Impl::OnWelcome(const Message& message, const Welcome& welcome) {
  if (desk.running() || !control.OnWelcome(welcome, message.job)) return;
  pushes.Begin(desk.view.routes.owners.size());
  cache.Begin(desk.view.routes.owners.size());
  combiner.Begin();
  ticks.Begin(welcome.start_clock);
  ticks.AdoptView();
  residuals.Begin(desk.job_file.job.seed);
  blob.OnWelcome();
}

void Client::Impl::OnView(const View& view) {
  const Epoch before = desk.view.routes.epoch;
  if (!control.OnView(view) || !desk.running()) return;
  ticks.AdoptView();
  if (desk.view.routes.epoch == before) return;
  desk.lists.Clear();
  pushes.Reroute();
  pulls.Reroute();
  ticks.Reroute();
}

void Client::Impl::FromShard(ShardId shard, Message message) {
  const Body& body = message.body;
  if (!std::holds_alternative<ErrorReply>(body)) unread.erase(shard);
  if (const auto* reply = std::get_if<PullReply>(&body)) {
    pulls.OnReply(shard, *reply, message.values);
  } else if (const auto* ack = std::get_if<PushAck>(&body)) {
    pushes.OnAck(shard, *ack);
  } else if (const auto* tick = std::get_if<TickAck>(&body)) {
    ticks.OnAck(shard, tick->clock);
  } else if (const auto* blob_ack = std::get_if<PutBlobAck>(&body)) {
    blob.OnAck(shard, *blob_ack);
  } else if (const auto* piece = std::get_if<BlobPiece>(&body)) {
    blob.OnPiece(shard, *piece, message.values);
  } else if (const auto* error = std::get_if<ErrorReply>(&body)) {
    OnError(shard, *error);
  }
}

void Client::Impl::OnError(ShardId shard, const ErrorReply& error) {
  if (error.code == ErrorCode::kFenced && (error.request.value == 0 || desk.IsOurs(error.request))) {
    // One that leaves is fenced in the end, and what it repeated before may come to a shard after that.
    if (!control.leaving()) desk.Stop(error.code, error.message);
    return;
  }
  // What a newer view may cure is asked for at once.
  const bool newer = error.code == ErrorCode::kStaleEpoch && error.epoch > desk.view.routes.epoch;
  if (newer || error.code == ErrorCode::kWrongShard || error.code == ErrorCode::kNotFound) desk.wants_heartbeat = true;
  if (error.code == ErrorCode::kUnknownKeys) {
    ++desk.counters.unknown_lists;
    desk.lists.OnUnknown(shard, desk.now + desk.heartbeat_us);
  }
  if (error.request.value == 0) {
    if (!ticks.OnError(shard, error)) OnNamelessError(shard, error);
  } else if (!pulls.OnError(shard, error)) {
    pushes.OnError(shard, error);
  }
}

// A shard that cannot read us says so without knowing which request that was.
void Client::Impl::OnNamelessError(ShardId shard, const ErrorReply& error) {
  if (pushes.idle() && pulls.idle()) return;
  Patience& patience = unread[shard];
  if (desk.GivesUp(&patience))
    desk.Stop(error.code, desk.Refusal(shard, "what it was sent", error.message, patience.since()));
}

const TableSpec* Client::Impl::TableOf(const Plan& plan, RequestId* failed) {
  const auto table = desk.tables.find(plan.table);
  const bool known = table != desk.tables.end();
  if (known && table->second.dim == plan.dim) return &table->second;
  *failed = desk.NewRequest();
  const std::string name = "table " + std::to_string(plan.table.value);
  Error error{ErrorCode::kNotFound, name + ": not known to this client"};
  if (known)
    error = {ErrorCode::kInvalidArgument, name + ": a plan for rows of " + std::to_string(plan.dim) +
                                              " values, but they have " + std::to_string(table->second.dim)};
  desk.events.push_back(RequestFailed{*failed, std::move(error)});
  return nullptr;
}

RequestId Client::Impl::Pull(const Plan& plan, PullWhen when) {
  RequestId id;
  const TableSpec* spec = TableOf(plan, &id);
  if (spec == nullptr) return id;
  if (KeptTable* kept = cache.Of(*spec); kept != nullptr && !plan.keys.empty())
    return PullThroughCache(kept, *spec, plan, when);
  id = pulls.Begin(plan, *spec, when);
  Ask(id, *spec, plan);
  return id;
}

RequestId Client::Impl::PullPart(const Plan& plan, PullWhen when) {
  RequestId id;
  const TableSpec* spec = TableOf(plan, &id);
  if (spec == nullptr) return id;
  id = pulls.BeginPart(plan, *spec, when);
  Ask(id, *spec, plan);
  return id;
}

void Client::Impl::Ask(RequestId pull, const TableSpec& spec, const Plan& plan) {
  const std::uint32_t rows_max = PieceRows(spec, desk.options.piece_bytes);
  for (Piece& piece : CutPieces(plan, desk.view.routes, rows_max)) {
    Buffer frame;
    KeyList keys = PieceKeys(plan.keys, piece, &frame);
    keys.list = desk.lists.NumberOf(piece.shard, frame, desk.now);
    for (Section& section : keys.sections) section.sequence = pushes.LastSequence(section.partition);
    pulls.Add(pull, std::move(piece), std::move(keys), std::move(frame));
  }
}

RequestId Client::Impl::PullThroughCache(KeptTable* kept, const TableSpec& spec, const Plan& plan, PullWhen when) {
  std::unique_ptr<CachedPull> cached = cache.Look(kept, spec, plan, when.use);
  const Plan missing = cached->Missing(plan);
  if (missing.keys.empty()) return pulls.Answered(cached.get());
  const RequestId id = pulls.Begin(missing, spec, when, std::move(cached));
  Ask(id, spec, missing);
  return id;
}

// Rows of tables that are not known yet are not on any disk.
void Client::Impl::Prefetch(const Plan& plan) {
  const auto table = desk.tables.find(plan.table);
  if (table == desk.tables.end() || table->second.kind != TableKind::kSparse || plan.keys.empty()) return;
  const std::uint32_t rows_max = PieceRows(table->second, desk.options.piece_bytes);
  for (const Piece& piece : CutPieces(plan, desk.view.routes, rows_max)) {
    Buffer frame;
    KeyList keys = PieceKeys(plan.keys, piece, &frame);
    desk.lists.Dress(piece.shard, &keys, &frame);
    desk.Send(ShardPeer(piece.shard), tarn::Prefetch{plan.table, std::move(keys)}, frame);
  }
}

RequestId Client::Impl::Push(const Plan& plan, const Buffer& gradients, const ClientPushes::What& what) {
  RequestId id;
  const TableSpec* spec = TableOf(plan, &id);
  if (spec == nullptr) return id;
  TARN_CHECK(gradients.size() == plan.keys.size() * spec->dim * sizeof(float), "one gradient row per unique key");
  if (what.clock == ticks.asked()) ticks.OnPush();
  if (combiner.Combines(*spec)) return combiner.Add(plan, *spec, gradients, what);
  Residuals::Sent sent{&plan, gradients};
  if (spec->push_codec == ValueCodec::kTopK && !plan.keys.empty()) sent = Compress(plan, *spec, gradients, what.clock);
  id = pushes.Add(*sent.plan, *spec, sent.rows, what);
  if (KeptTable* kept = cache.Of(*spec)) cache.OnPush(kept, *sent.plan, pushes);
  return id;
}

Residuals::Sent Client::Impl::Compress(const Plan& plan, const TableSpec& spec, const Buffer& gradients, Clock clock) {
  Residuals::Sent sent = residuals.Compress(plan, spec, desk.view.routes.partition_bits, gradients, clock);
  const Residuals::Counters& kept = residuals.counters();
  desk.counters.residual_rows = kept.rows;
  desk.counters.residuals_expired = kept.expired;
  desk.counters.residuals_crowded = kept.crowded;
  return sent;
}

void Client::Impl::TickTo(Clock clock, const MaybePosition& position) {
  const Clock before = ticks.asked();
  ticks.Ask(clock, position);
  combiner.OnTick(before, ticks.asked());
}

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(options)) {}
Client::~Client() = default;

void Client::Start(TimeUs now, Outbox* out) {
  impl_->Step(now, out, [&] {
    impl_->desk.heard = now;
    impl_->desk.listening.Begin(now);
    impl_->control.Join();
  });
}

void Client::OnMessage(Peer from, Message message, TimeUs now, Outbox* out) {
  Hear(from, std::move(message), now);
  Settle(now, out);
}

void Client::Hear(Peer from, Message message, TimeUs now) {
  impl_->desk.Begin(now);
  impl_->desk.out = &impl_->answers;
  impl_->OnMessage(from, std::move(message));
  impl_->desk.out = nullptr;
}

void Client::Settle(TimeUs now, Outbox* out) {
  impl_->Step(now, out, [] {});
}

void Client::OnTimer(TimeUs now, Outbox* out) {
  impl_->Step(now, out, [&] {
    if (!impl_->desk.running()) return;
    impl_->combiner.OnTimer();
    impl_->pushes.OnTimer();
    impl_->pulls.OnTimer();
    impl_->ticks.OnTimer();
    impl_->blob.OnTimer();
  });
}

TimeUs Client::NextTimer() const {
  const ClientState now = state();
  if (now != ClientState::kRunning && now != ClientState::kJoining) return kNever;
  const TimeUs data = std::min(impl_->pushes.NextTimer(), impl_->pulls.NextTimer());
  const TimeUs control = std::min({impl_->ticks.NextTimer(), impl_->blob.NextTimer(), impl_->control.NextTimer()});
  return std::min({data, impl_->combiner.NextTimer(), control});
}

std::vector<ClientEvent> Client::TakeEvents() { return std::exchange(impl_->desk.events, {}); }

ClientState Client::state() const {
  return impl_->desk.running() && !impl_->ready() ? ClientState::kJoining : impl_->desk.state;
}
const Shutdown& Client::stop_reason() const { return impl_->desk.stop_reason; }
TimeUs Client::busy_poll_us() const { return impl_->desk.busy_poll_us; }
std::uint32_t Client::lanes() const { return impl_->desk.job_file.fleet.lanes; }
TimeUs Client::scheduler_heard() const { return impl_->desk.heard; }

TimeUs Client::SchedulerSilence(TimeUs now) const {
  return impl_->desk.listening.Silence(impl_->desk.heard, now, impl_->desk.lease_us);
}

Status Client::CheckScheduler(TimeUs now, const std::string& scheduler) const {
  const TimeUs silent = SchedulerSilence(now);
  if (!impl_->desk.running() || silent < kLeasesUntilLost * impl_->desk.lease_us) return {};
  return Fail(ErrorCode::kUnavailable,
              fmt::format("the scheduler at {} has not been heard for {:.1f} seconds (a lease "
                          "is {:.1f}): it is dead or cannot be reached",
                          scheduler, double(silent) * 1e-6, double(impl_->desk.lease_us) * 1e-6));
}

const View& Client::view() const { return impl_->desk.view; }
const Welcome& Client::welcome() const { return impl_->desk.welcome; }
std::uint64_t Client::job() const { return impl_->desk.job; }
Clock Client::clock() const { return impl_->ticks.asked(); }

RequestId Client::Pull(const Plan& plan, PullWhen when, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return RequestId(0);
  return impl_->Step(now, out, [&] { return impl_->Pull(plan, when); });
}

RequestId Client::PullPart(const Plan& plan, PullWhen when, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return RequestId(0);
  return impl_->Step(now, out, [&] { return impl_->PullPart(plan, when); });
}

void Client::CountPull(std::uint64_t staleness) {
  ++impl_->desk.counters.pulls;
  impl_->desk.CountStaleness(staleness);
}

void Client::Prefetch(const Plan& plan, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return;
  impl_->Step(now, out, [&] { impl_->Prefetch(plan); });
}

RequestId Client::Push(const Plan& plan, Buffer gradients, Clock pulled_clock, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return RequestId(0);
  return impl_->Step(now, out, [&] { return impl_->Push(plan, gradients, {clock(), pulled_clock, {}}); });
}

Client::PushPullIds Client::PushPull(const Plan& plan, Buffer gradients, Clock pulled_clock,
                                     const MaybePosition& position, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return {};
  return impl_->Step(now, out, [&]() -> PushPullIds {
    PushPullIds ids;
    const TableSpec* spec = impl_->TableOf(plan, &ids.push);
    const Clock pushed = clock();
    if (spec != nullptr && impl_->GoesApart(*spec)) {
      ids.push = impl_->Push(plan, gradients, {pushed, pulled_clock, {}});
      impl_->TickTo(pushed + 1, position);
      ids.pull = impl_->Pull(plan, pushed + 1);
      return ids;
    }
    impl_->TickTo(pushed + 1, position);
    if (spec == nullptr) {
      impl_->TableOf(plan, &ids.pull);
      return ids;
    }
    ids.pull = impl_->pulls.Begin(plan, *spec, pushed + 1);
    ids.push = impl_->Push(plan, gradients, {pushed, pulled_clock, ids.pull});
    return ids;
  });
}

void Client::Tick(const MaybePosition& position, TimeUs now, Outbox* out) { TickTo(clock() + 1, position, now, out); }

void Client::TickTo(Clock clock, const MaybePosition& position, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return;
  impl_->Step(now, out, [&] { impl_->TickTo(clock, position); });
}

void Client::DropKeptRows() { impl_->cache.Clear(); }

void Client::CreateTable(const TableSpec& spec, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return;
  impl_->Step(now, out, [&] { impl_->control.CreateTable(spec); });
}

void Client::Barrier(TimeUs now, Outbox* out) {
  if (!impl_->ready()) return;
  impl_->Step(now, out, [&] {
    impl_->combiner.FlushAll();
    impl_->control.Barrier();
  });
}

void Client::RequestLeases(LeaseRequest request, TimeUs now, Outbox* out) {
  if (!impl_->ready()) return;
  impl_->Step(now, out, [&] { impl_->control.RequestLeases(std::move(request)); });
}

void Client::Leave(TimeUs now, Outbox* out) {
  if (!impl_->desk.running()) return;
  impl_->Step(now, out, [&] { impl_->wants_to_leave = true; });
}

const Client::Counters& Client::counters() const { return impl_->desk.counters; }
const std::vector<std::uint64_t>& Client::staleness() const { return impl_->desk.staleness; }
void Client::SetMetrics(std::vector<Counter> counters) { impl_->control.SetMetrics(std::move(counters)); }
bool Client::idle() const { return impl_->idle(); }
std::size_t Client::pending_bytes() const { return impl_->pushes.pending_bytes(); }

std::uint64_t Client::StateHash() const {
  std::uint64_t hash = HashCombine(static_cast<std::uint64_t>(impl_->desk.state), impl_->desk.view.version.value);
  hash = HashCombine(hash, impl_->desk.welcome.incarnation.value);
  hash = HashCombine(HashCombine(hash, impl_->pushes.Hash()), impl_->pulls.Hash());
  hash = HashCombine(hash, impl_->desk.lists.Hash());
  hash = HashCombine(HashCombine(hash, impl_->cache.Hash()), impl_->combiner.Hash());
  hash = HashCombine(HashCombine(hash, impl_->residuals.Hash()), impl_->blob.Hash());
  return HashCombine(HashCombine(hash, impl_->ticks.Hash()), impl_->control.Hash());
}

std::vector<Counter> MetricsOf(const Client::Counters& c) {
  return {{"pull_bytes", double(c.pull_bytes)},
          {"push_bytes", double(c.push_bytes)},
          {"repeats", double(c.repeats)},
          {"unknown_lists", double(c.unknown_lists)},
          {"cache_rows", double(c.cache_rows)},
          {"cache_hits", double(c.cache_hits)},
          {"combined_pushes", double(c.combined_pushes)},
          {"residual_rows", double(c.residual_rows)},
          {"residuals_expired", double(c.residuals_expired)},
          {"residuals_crowded", double(c.residuals_crowded)}};
}

}  // namespace tarn::worker
