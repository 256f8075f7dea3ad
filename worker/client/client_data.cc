#include "worker/client/client_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/hash.h"
#include "worker/client/client_pieces.h"

namespace tarn::worker {
namespace {

constexpr std::uint64_t kTopKValuesMax = (std::uint64_t{1} << 31) - 1;  // of a dense push (kernels::TopK)

}  // namespace

ClientData::ClientData(ClientContext* context)
    : context_(context),
      lists_(context->options.held_keys_min, context->options.held_keys_bytes),
      cache_(context),
      pulls_(context, &lists_, &memory_,
             [this](const TableSpec& spec, Clock use, Clock open) { OnOpenClock(spec, use, open); }),
      refresher_(context, &cache_,
                 [this](const TableSpec& spec, const Plan& plan, Clock use, std::unique_ptr<CachingSink> sink) {
                   AskStanding(spec, plan, use, std::move(sink));
                 }),
      pushes_(context, &lists_),
      combiner_(context, &pushes_),
      ticks_(context, &pushes_) {}

void ClientData::Begin(Clock start) {
  const std::size_t partitions = context_->view.routes.owners.size();
  ChooseLists();
  cache_.Begin(partitions);
  pushes_.Begin(partitions);
  combiner_.Begin();
  ticks_.Begin(start);
  ticks_.AdoptView(false);
  residuals_.Begin(context_->job_file.job.seed);
}

// In shared memory, sending keys costs less than finding their list again: jobs were up to a tenth faster without lists
// (bench/results/2026-11-28-training.md).
void ClientData::ChooseLists() {
  if (!context_->job_file.train.key_caching) lists_.SwitchOff();
  const std::vector<std::string>& endpoints = context_->view.routes.endpoints;
  for (std::uint32_t i = 0; i < endpoints.size(); ++i)
    if (context_->options.shm && endpoints[i].starts_with("ipc:")) lists_.SwitchOff(ShardId(i));
}

void ClientData::Reroute() {
  lists_.Clear();
  ChooseLists();
  pushes_.Reroute();
  pulls_.Reroute();
  ticks_.Reroute();
}

// Returns the table of a plan. An error: the table is unknown, or its rows have another dim.
Expected<const TableSpec*> ClientData::TableOf(const Plan& plan) const {
  const auto table = context_->tables.find(plan.table);
  if (table == context_->tables.end())
    return Fail(ErrorCode::kNotFound, fmt::format("table {}: not known to this client", plan.table.value));
  if (table->second.dim != plan.dim)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: the plan is for rows of {} values, expected {}",
                                                         context_->NameOf(plan.table), plan.dim, table->second.dim));
  return &table->second;
}

void ClientData::Pull(std::span<const TableToPull> tables) {
  pulls_.BeginGroup();
  for (const TableToPull& table : tables) PullTable(*table.plan, table.when, table.sink);
}

void ClientData::PullTable(const Plan& plan, const PullWhen& when, PullSink* sink) {
  const auto spec = TableOf(plan);
  if (!spec) return sink->Failed(spec.error());
  if (when.counted) ++context_->counters.pulls;
  if (plan.keys.empty()) return sink->Done(0);
  CachedTable* const table_cache = when.counted ? cache_.Of(**spec) : nullptr;
  auto record = Remember(plan, **spec, when);
  if (table_cache == nullptr) return Ask(pulls_.Begin(plan, **spec, when, sink, std::move(record)), **spec, plan);

  auto cached = cache_.Look(table_cache, **spec, plan, when.use, sink);
  if (record != nullptr && cached->found().rows != 0) NoteCached(plan, when.use, cached->found().oldest);
  cached->RecordIn(record);
  const Plan& missing = cached->missing();
  if (missing.keys.empty()) {
    const std::uint64_t staleness = cached->StalenessAt(when.use);
    context_->CountStaleness(staleness);
    return cached->Done(staleness);
  }
  CachedPull* const through_cache = cached.get();
  Ask(pulls_.Begin(missing, **spec, when, through_cache, std::move(record), std::move(cached)), **spec, missing);
}

// The record of a pull, for the push of its rows. A caller with its own cache has made one for all rows of the batch.
std::shared_ptr<PullRecord> ClientData::Remember(const Plan& plan, const TableSpec& spec, const PullWhen& when) {
  if (!when.pushed) return nullptr;
  if (!when.counted)
    if (auto record = memory_.Newest(spec.id, when.use)) return record;
  return memory_.Begin(when.part_of != nullptr ? *when.part_of : plan, spec, when.use);
}

void ClientData::NoteCached(const Plan& plan, Clock use, Clock oldest) {
  const auto spec = TableOf(plan);
  if (!spec || plan.keys.empty()) return;
  auto record = memory_.Newest(plan.table, use);
  if (record == nullptr) record = memory_.Begin(plan, **spec, use);
  for (const PlanRun& run : plan.runs)
    record->NoteVersion(run.partition, memory_.OldestSince(plan.table, run.partition, oldest));
  record->NoteClock(oldest);
}

void ClientData::Ask(RequestId pull, const TableSpec& spec, const Plan& plan) {
  const std::uint32_t rows_max = PieceRows(spec, context_->options.piece_bytes);
  for (Piece& piece : CutPieces(plan, context_->view.routes, rows_max)) {
    KeyList keys = PieceKeys(plan.keys, piece);
    keys.list = lists_.NumberOf(piece.shard, keys.frame, context_->now);
    for (Section& section : keys.sections) section.sequence = pushes_.LastSequence(section.partition);
    pulls_.Add(pull, std::move(piece), std::move(keys));
  }
}

void ClientData::Push(std::span<const TableToPush> tables, Clock pulled_clock) {
  pushes_.BeginGroup();
  const PullMemory::Uses uses = UsesOf(pulled_clock);
  for (const TableToPush& table : tables)
    PushTable(*table.plan, table.gradients, uses, {.clock = ticks_.asked(), .done = table.done});
}

void ClientData::PushTable(const Plan& plan, const Buffer& gradients, PullMemory::Uses uses,
                           const ClientPushes::What& what) {
  const auto spec = TableOf(plan);
  if (!spec) return worker::Fail(what.done, spec.error());
  TARN_CHECK(gradients.size() == plan.keys.size() * plan.dim * sizeof(float), "one gradient row per unique key");
  const std::uint64_t values = std::uint64_t{plan.dim} * plan.keys.size();
  if ((*spec)->kind == TableKind::kDense && (*spec)->push_codec == ValueCodec::kTopK && values > kTopKValuesMax)
    return worker::Fail(what.done,
                        {ErrorCode::kTooLarge,
                         fmt::format("table '{}': a push of {} values with push_codec = \"topk\": expected at most {}; "
                                     "push parts of the rows one after the other, or choose another codec",
                                     (*spec)->name, values, kTopKValuesMax)});
  ticks_.OnPush();
  if (plan.keys.empty()) {
    ++context_->counters.pushes;
    return Complete(what.done);
  }
  Residuals::Sent sent{&plan, {gradients}};
  if (KeepsResiduals((*spec)->push_codec)) sent = Compress(plan, **spec, gradients, what.clock);
  const auto origin = memory_.OriginOf(*sent.plan, **spec, what.clock, uses);
  if (!origin) return worker::Fail(what.done, origin.error());
  if (combiner_.Combines(**spec)) return combiner_.Add(plan, **spec, gradients, *origin, what);
  pushes_.Add(*sent.plan, **spec, sent.rows, *origin, what);
  if (CachedTable* cached = cache_.Of(**spec)) cache_.OnPush(cached, *sent.plan, pushes_);
}

// The change is sent after the pushes of the table that wait to be combined. The residuals of the rows remain.
void ClientData::Change(const Plan& plan, PushAction action, const Buffer& values, Completion<>* done) {
  const auto spec = TableOf(plan);
  if (!spec) return worker::Fail(done, spec.error());
  ticks_.OnPush();
  if (plan.keys.empty()) return Complete(done);
  if (combiner_.Combines(**spec)) combiner_.FlushAll();
  pushes_.BeginGroup();
  const PushOrigin origin{.seen = ticks_.asked(), .versions = std::vector(plan.runs.size(), kNoVersion), .pulled = {}};
  pushes_.Add(plan, **spec, {values}, origin, {.clock = ticks_.asked(), .done = done, .action = action});
  if (CachedTable* cached = cache_.Of(**spec)) cache_.OnPush(cached, plan, pushes_);
}

// The part of a push that is sent now; the rest is kept as residuals.
Residuals::Sent ClientData::Compress(const Plan& plan, const TableSpec& spec, const Buffer& gradients, Clock clock) {
  Residuals::Sent sent = residuals_.Compress(plan, spec, context_->view.routes.partition_bits, gradients, clock);
  const Residuals::Counters& kept = residuals_.counters();
  context_->counters.residual_rows = kept.rows;
  context_->counters.residuals_expired = kept.expired;
  context_->counters.residuals_crowded = kept.crowded;
  return sent;
}

// Sends nothing where no rows are on disk: for tables that are dense or do not exist yet, and to shards whose last
// answer reported no rows of the table there (T4).
void ClientData::Prefetch(const Plan& plan) {
  const auto table = context_->tables.find(plan.table);
  if (table == context_->tables.end() || table->second.kind != TableKind::kSparse || plan.keys.empty()) return;
  const std::uint32_t rows_max = PieceRows(table->second, context_->options.piece_bytes);
  for (const Piece& piece : CutPieces(plan, context_->view.routes, rows_max)) {
    if (!pulls_.MayBeOnDisk(piece.shard, plan.table)) continue;
    KeyList keys = PieceKeys(plan.keys, piece);
    lists_.Encode(piece.shard, &keys);
    context_->Send(ShardPeer(piece.shard), tarn::Prefetch{plan.table, std::move(keys)});
  }
}

void ClientData::TickTo(Clock clock, const MaybePosition& position, Completion<>* done) {
  const Clock before = ticks_.asked();
  ticks_.Ask(clock, position, done);
  combiner_.OnTick(before, ticks_.asked());
}

void ClientData::AskStanding(const TableSpec& spec, const Plan& plan, Clock use, std::unique_ptr<CachingSink> sink) {
  Ask(pulls_.BeginStanding(plan, spec, use, std::move(sink)), spec, plan);
}

void ClientData::OnOpenClock(const TableSpec& spec, Clock use, Clock open) {
  refresher_.NoteOpen(spec, open);
  if (spec.consistency.backup_workers == 0) return;
  const Clock before = ticks_.asked();
  ticks_.NoteOpen(use, open);
  combiner_.OnTick(before, ticks_.asked());
}

bool ClientData::OnMessage(ShardId shard, const Message& message) {
  const Body& body = message.body;
  if (const auto* error = std::get_if<ErrorReply>(&body)) {
    OnError(shard, *error);
    return true;
  }
  errors_without_request_.erase(shard);
  if (const auto* reply = std::get_if<PullReply>(&body))
    pulls_.OnReply(shard, *reply);
  else if (const auto* ack = std::get_if<PushAck>(&body))
    pushes_.OnAck(shard, *ack);
  else if (const auto* tick = std::get_if<TickAck>(&body))
    ticks_.OnAck(shard, tick->clock);
  else
    return false;
  return true;
}

void ClientData::OnError(ShardId shard, const ErrorReply& error) {
  // If a newer view may resolve the refusal, a heartbeat requests it at once.
  const bool newer = error.code == ErrorCode::kStaleEpoch && error.epoch > context_->view.routes.epoch;
  if (newer || error.code == ErrorCode::kWrongShard || error.code == ErrorCode::kNotFound)
    context_->wants_heartbeat = true;
  if (error.code == ErrorCode::kUnknownKeys) {
    ++context_->counters.unknown_lists;
    lists_.OnUnknown(shard, context_->now + context_->heartbeat_us());
  }
  if (error.request.value == 0) {
    if (!ticks_.OnError(shard, error)) OnErrorWithoutRequest(shard, error);
  } else if (!pulls_.OnError(shard, error)) {
    pushes_.OnError(shard, error);
  }
}

// A shard that cannot read a message cannot name its request. The client cannot fail a single request then, so it stops
// if such errors last.
void ClientData::OnErrorWithoutRequest(ShardId shard, const ErrorReply& error) {
  if (pushes_.idle() && pulls_.idle()) return;
  RefusalTimer& timer = errors_without_request_[shard];
  if (context_->GivesUp(&timer))
    context_->Stop(error.code,
                   context_->RefusalText(shard, "a message that it could not read", error.message, timer.since()));
}

void ClientData::OnTimer() {
  combiner_.OnTimer();
  pushes_.OnTimer();
  pulls_.OnTimer();
  ticks_.OnTimer();
}

TimeUs ClientData::NextTimer() const {
  return std::min({combiner_.NextTimer(), pushes_.NextTimer(), pulls_.NextTimer(), ticks_.NextTimer()});
}

void ClientData::Dispatch(bool push_separately) {
  combiner_.SetSeparate(push_separately);
  pushes_.Dispatch([this](Clock clock) { return ticks_.MayPush(clock); });
  refresher_.Dispatch();
  pulls_.Dispatch();
  ticks_.Dispatch();
}

void ClientData::FailAll(const Error& error) {
  pulls_.FailAll(error);
  combiner_.FailAll(error);
  pushes_.FailAll(error);
  ticks_.FailAll(error);
}

void ClientData::FailPullsOfLaterClocks() {
  refresher_.Stop();
  pulls_.DropStanding();
  pulls_.FailAfter(ticks_.asked(),
                   {ErrorCode::kCancelled, fmt::format("this worker leaves at clock {}: a pull for a later "
                                                       "clock is not answered",
                                                       ticks_.asked().value)});
}

std::uint64_t ClientData::Hash() const {
  std::uint64_t hash = HashCombine(pushes_.Hash(), pulls_.Hash());
  hash = HashCombine(HashCombine(hash, lists_.Hash()), cache_.Hash());
  hash = HashCombine(HashCombine(hash, combiner_.Hash()), memory_.Hash());
  return HashCombine(hash, HashCombine(residuals_.Hash(), ticks_.Hash()));
}

}  // namespace tarn::worker
