#include "worker/train/pull_stage.h"

#include <algorithm>
#include <limits>

#include "kernels/rows.h"
#include "worker/client/client_cache.h"
#include "worker/client/pull_memory.h"

namespace tarn::worker {
namespace {

// The fewest rows for which a message of their own to a shard pays: with fewer, the message costs more than pulling
// them ahead saves.
std::size_t AheadRowsMin(const TableSpec& spec) {
  constexpr std::size_t kAheadBytesMin = std::size_t{64} << 10;
  return kAheadBytesMin / (sizeof(Key) + CodecRowBytes(spec.pull_codec, spec.dim)) + 1;
}

}  // namespace

Expected<std::unique_ptr<PullStage>> PullStage::Make(const Job& job, std::span<const TableUse> uses,
                                                     std::uint32_t partition_bits, Client* client, Trace* trace) {
  std::unique_ptr<PullStage> stage(new PullStage(client, trace));
  stage->dense_plans_.resize(uses.size());
  for (std::size_t t = 0; t < uses.size(); ++t)
    if (uses[t].rows == RowsNeeded::kAll)
      stage->dense_plans_[t] = PlanOfAll(uses[t].spec, job.job.seed, partition_bits);
  auto hot = HotTables::Make(job, uses, client->welcome().rank);
  if (!hot) return std::unexpected(std::move(hot).error());
  stage->hot_ = std::move(*hot);
  stage->MakeUnpushedRows(job, uses);
  return stage;
}

// Tables in `bsp` need no UnpushedRows, because their pulls wait for the pushes of all earlier clocks in any case. If a
// table's pushes carry the rows as they were pulled (rule A6), its pulls are never divided.
void PullStage::MakeUnpushedRows(const Job& job, std::span<const TableUse> uses) {
  unpushed_.resize(uses.size());
  if (job.train.prefetch == 0) return;
  const std::size_t shards = client_->view().routes.endpoints.size();
  for (std::size_t t = 0; t < uses.size(); ++t) {
    const TableSpec& spec = uses[t].spec;
    if (hot_[t] == nullptr && spec.consistency.mode != ConsistencyMode::kBsp &&
        SeesOwnPushes(spec.consistency, WorkerCacheOf(job, spec.name).own_pushes))
      unpushed_[t] = std::make_unique<UnpushedRows>(NeedsPulled(spec) ? std::numeric_limits<std::size_t>::max()
                                                                      : shards * AheadRowsMin(spec));
  }
}

void PullStage::DropCachedRows() {
  client_->DropCachedRows();
  hot_.Clear();
}

Status PullStage::Begin(std::span<const Plan> plans, Clock use, bool train, TimeUs now, Outbox* out, BatchRows* rows) {
  if (evaluation_.Before(train, use)) DropCachedRows();
  const std::size_t tables = dense_plans_.size();
  rows->use = use;
  rows->begun_at = Trace::SteadyClock::now();
  rows->values.resize(tables);
  rows->placed.resize(tables);
  rows->hot = hot_.MakeBatch();
  rows->parts_staleness.assign(tables, 0);
  rows->in_parts.assign(tables, false);
  if (train) rows->number = ++begun_;
  ++rows->waiting;    // counted before the pulls, because pulls without keys complete at once
  requests_.clear();  // of a call that failed
  busy_.Begin(rows->begun_at);
  for (std::size_t t = 0; t < tables; ++t) {
    rows->plans.push_back(dense_plans_[t].keys.empty() ? &plans[t] : &dense_plans_[t]);
    if (train && unpushed_[t] != nullptr)
      PullInParts(t, rows);
    else
      TARN_RETURN_IF_ERROR(PullTable(t, train, rows));
  }
  Send(now, out);
  if (--rows->waiting == 0) Complete(rows);
  return {};
}

Status PullStage::PullTable(std::size_t table, bool train, BatchRows* rows) {
  const Plan* plan = rows->plans[table];
  const bool hot = hot_[table] != nullptr;
  if (hot) {
    TARN_RETURN_IF_ERROR(hot_[table]->Look(*plan, rows->use, &rows->hot[table]));
    const Plan& missing = rows->hot[table].missing();
    if (train) NoteFound(table, *rows);
    plan = &missing;
    if (plan->keys.empty()) return {};
  }
  ++rows->waiting;
  PullSink* const sink = &rows->pulls.emplace_back(this, rows, table, *plan, std::vector<std::uint32_t>());
  requests_.push_back({plan, {.use = rows->use, .counted = !hot, .pushed = train}, sink});
  return {};
}

// The push of the batch also names the versions of the rows that were found.
void PullStage::NoteFound(std::size_t table, const BatchRows& rows) {
  const Plan& plan = *rows.plans[table];
  if (rows.hot[table].missing().keys.size() != plan.keys.size())
    client_->NoteCached(plan, rows.use, hot_[table]->OldestAllowedAt(rows.use));
}

// A dense table is not divided, because every batch pushes all of its rows.
void PullStage::PullInParts(std::size_t table, BatchRows* rows) {
  const std::uint64_t before = rows->number - 1;
  if (!dense_plans_[table].keys.empty())
    parts_.assign(1, {.after = before > ended_ ? before : 0, .places = {}});
  else
    unpushed_[table]->Split(rows->number, ended_, *rows->plans[table], &parts_);
  rows->in_parts[table] = parts_.size() > 1;
  rows->waiting += parts_.size();
  for (UnpushedRows::Part& part : parts_) {
    if (part.after == 0)
      Request(table, std::move(part), rows);
    else
      later_.push_back({rows, table, std::move(part)});
  }
}

void PullStage::Request(std::size_t table, UnpushedRows::Part part, BatchRows* rows) {
  const Plan& whole = *rows->plans[table];
  const bool all = part.places.empty();
  const Plan& plan = all ? whole : requested_parts_.emplace_back(PartOf(whole, part.places));
  PullSink* const sink = &rows->pulls.emplace_back(this, rows, table, plan, std::move(part.places));
  requests_.push_back({&plan, {.use = rows->use, .counted = all, .part_of = all ? nullptr : &whole}, sink});
}

void PullStage::Send(TimeUs now, Outbox* out) {
  if (!requests_.empty()) client_->Pull(requests_, now, out);
  requests_.clear();
  requested_parts_.clear();
}

// Requests the rows that waited for batches that have ended.
void PullStage::RequestLater(TimeUs now, Outbox* out) {
  const auto due = std::ranges::stable_partition(later_, [this](const Later& l) { return l.part.after > ended_; });
  for (Later& later : due) Request(later.table, std::move(later.part), later.rows);
  later_.erase(due.begin(), due.end());
  Send(now, out);
}

void TableSink::Done(std::uint64_t staleness) {
  if (places_.empty())
    stage_->Arrive(batch_, table_, rows_.Release(), staleness);
  else
    stage_->ArrivePart(batch_, table_, places_, rows_.values(), staleness);
}
void TableSink::Failed(const Error& error) { stage_->NoteError(error); }

void PullStage::Arrive(BatchRows* rows, std::size_t table, Buffer values, std::uint64_t staleness) {
  if (hot_[table] == nullptr) {
    rows->values[table] = std::move(values);
  } else {
    const Clock version(rows->use.value - staleness);
    if (Status kept = hot_[table]->Arrive(std::move(values), version, &rows->hot[table]); !kept)
      return NoteError(std::move(kept).error());
  }
  if (--rows->waiting == 0) Complete(rows);
}

void PullStage::ArrivePart(BatchRows* rows, std::size_t table, std::span<const std::uint32_t> places,
                           const Buffer& values, std::uint64_t staleness) {
  const Plan& plan = *rows->plans[table];
  Buffer& whole = rows->values[table];
  if (whole.empty()) whole = Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float));
  kernels::ScatterByIndex(plan.dim, places.size(), values.as<float>().data(), places.data(),
                          whole.as_mutable<float>().data());
  rows->parts_staleness[table] = std::max(rows->parts_staleness[table], staleness);
  if (--rows->waiting == 0) Complete(rows);
}

Status PullStage::Read(BatchRows* rows, kernels::Stream* user) {
  const bool train = rows->number != 0;
  for (std::size_t t = 0; t < rows->plans.size(); ++t)
    if (train && hot_[t] != nullptr) NoteFound(t, *rows);  // again: some rows may have been in flight
  return hot_.Read(&rows->hot, &rows->placed, user);
}

void PullStage::NoteError(Error error) {
  if (status_) status_ = std::unexpected(std::move(error));
}

void PullStage::Complete(BatchRows* rows) {
  const auto now = Trace::SteadyClock::now();
  trace_->Add("pull", kPullTrack, rows->begun_at, now);
  busy_.End(now);
}

void PullStage::End(BatchRows* rows, bool pushed, TimeUs now, Outbox* out) {
  if (rows->number != 0) ended_ = rows->number;
  RequestLater(now, out);
  for (std::size_t t = 0; t < rows->plans.size(); ++t) {
    if (rows->in_parts[t]) client_->CountPull(rows->parts_staleness[t]);
    if (hot_[t] == nullptr) continue;
    if (pushed) hot_[t]->Push(rows->hot[t]);
    hot_[t]->End(&rows->hot[t]);
    if (!rows->plans[t]->keys.empty()) client_->CountPull(rows->hot[t].staleness());
  }
  hot_.Recycle(std::move(rows->hot));
}

}  // namespace tarn::worker
