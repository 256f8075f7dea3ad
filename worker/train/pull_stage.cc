#include "worker/train/pull_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "core/byte_size.h"
#include "core/log.h"
#include "core/position.h"
#include "worker/client/client_cache.h"
#include "worker/client/pull_memory.h"
#include "worker/train/stepper.h"

namespace tarn::worker {
namespace {

double SecondsSince(Trace::SteadyClock::time_point begin) {
  return std::chrono::duration<double>(Trace::SteadyClock::now() - begin).count();
}

Plan PlanOfAll(const TableSpec& spec, std::uint64_t seed, Planner* planner) {
  std::vector<Key> all(spec.rows);
  std::iota(all.begin(), all.end(), Key{0});
  Plan plan;
  planner->Make(spec.id, spec.dim, Positioner(spec, TableSalt(seed, spec.name)), all, &plan);
  return plan;
}

// Why training finds no cached rows of a table; empty: it can.
std::string_view WhyNoneIsFound(const ConsistencySpec& consistency, OwnPushes own_pushes) {
  if (SeesOwnPushes(consistency, own_pushes))
    return "own_pushes = \"seen\" takes out what a worker pushes; \"bounded\" does not";
  if (consistency.mode == ConsistencyMode::kBsp)
    return "mode = \"bsp\" lets nothing stay beyond its clock; \"ssp\" does";
  return {};
}

void WarnOfRowsThatAreNeverFound(const Job& job, std::span<const TableUse> uses) {
  if (job.train.hot_rows.rows == 0) return;
  for (const TableUse& use : uses) {
    if (use.spec.kind != TableKind::kSparse || use.spec.consistency.mode == ConsistencyMode::kAsp ||
        NeedsPulled(use.spec))
      continue;
    const OwnPushes own_pushes = WorkerCacheOf(job, use.spec.name).own_pushes;
    if (const std::string_view why = WhyNoneIsFound(use.spec.consistency, own_pushes); !why.empty())
      LogWarning("train.hot_rows: only evaluation will find rows of table '{}': {}", use.spec.name, why);
  }
}

}  // namespace

Expected<std::unique_ptr<PullStage>> PullStage::Make(const Job& job, std::span<const TableUse> uses,
                                                     std::uint32_t partition_bits, Client* client, Trace* trace) {
  std::unique_ptr<PullStage> stage(new PullStage(client, trace));
  Planner planner(partition_bits);
  stage->dense_plans_.resize(uses.size());
  for (std::size_t t = 0; t < uses.size(); ++t)
    if (uses[t].rows == RowsNeeded::kAll) stage->dense_plans_[t] = PlanOfAll(uses[t].spec, job.job.seed, &planner);
  WarnOfRowsThatAreNeverFound(job, uses);
  TARN_RETURN_IF_ERROR(stage->MakeHotTables(job, uses));
  return stage;
}

Status PullStage::MakeHotTables(const Job& job, std::span<const TableUse> uses) {
  hot_.resize(uses.size());
  if (job.train.hot_rows.rows == 0) return {};
  for (std::size_t t = 0; t < uses.size(); ++t) {
    const TableSpec& spec = uses[t].spec;
    if (spec.kind != TableKind::kSparse || spec.consistency.mode == ConsistencyMode::kAsp || NeedsPulled(spec))
      continue;
    const WorkerCacheSpec& cache = WorkerCacheOf(job, spec.name);
    if (cache.bytes != 0)
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("train.hot_rows = {} with worker_cache = {} for table '{}': its rows would be kept twice; "
                      "expected one of the two",
                      job.train.hot_rows.rows, ToByteSize(cache.bytes), spec.name));
    if (place_ == nullptr) {
      auto place = MakePlace(GpuFor(job.train, client_->welcome().rank));
      if (!place) return std::unexpected(std::move(place).error());
      place_ = std::move(*place);
    }
    auto table = HotTable::Make(place_.get(), spec, {.keep = job.train.hot_rows, .own_pushes = cache.own_pushes});
    if (!table) return std::unexpected(table.error());
    hot_[t] = std::move(*table);
  }
  return {};
}

void PullStage::DropKeptRows() {
  client_->DropKeptRows();
  for (auto& table : hot_)
    if (table != nullptr) table->Clear();
}

Status PullStage::Begin(std::span<const Plan> plans, Clock use, bool train, TimeUs now, Outbox* out, BatchRows* rows) {
  if (evaluation_.Before(train, use)) DropKeptRows();
  const std::size_t tables = dense_plans_.size();
  rows->use = use;
  rows->asked_at = Trace::SteadyClock::now();
  rows->values.resize(tables);
  rows->placed.resize(tables);
  if (!spare_.empty()) {
    rows->hot = std::move(spare_.back());
    spare_.pop_back();
  }
  rows->hot.resize(tables);
  ++rows->waiting;  // counted before the pulls, because pulls without keys complete at once
  if (batches_waiting_++ == 0) busy_since_ = rows->asked_at;
  for (std::size_t t = 0; t < tables; ++t) {
    rows->plans.push_back(dense_plans_[t].keys.empty() ? &plans[t] : &dense_plans_[t]);
    TARN_RETURN_IF_ERROR(Ask(t, train, now, out, rows));
  }
  if (--rows->waiting == 0) Complete(rows);
  return {};
}

Status PullStage::Ask(std::size_t table, bool train, TimeUs now, Outbox* out, BatchRows* rows) {
  const Plan* plan = rows->plans[table];
  const bool hot = hot_[table] != nullptr;
  if (hot) {
    TARN_RETURN_IF_ERROR(hot_[table]->Look(*plan, rows->use, &rows->hot[table]));
    const Plan& missing = rows->hot[table].missing();
    if (train && missing.keys.size() != plan->keys.size())
      client_->NoteKept(*plan, rows->use, hot_[table]->OldestAllowedAt(rows->use));
    plan = &missing;
    if (plan->keys.empty()) return {};
  }
  ++rows->waiting;
  PullSink* const sink = &rows->pulls.emplace_back(this, rows, table, *plan);
  client_->Pull(*plan, {.use = rows->use, .counted = !hot, .pushed = train}, sink, now, out);
  return {};
}

void TablePull::Done(std::uint64_t staleness) { stage_->Arrive(batch_, table_, rows_.Release(), staleness); }
void TablePull::Failed(const Error& error) { stage_->NoteError(error); }

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

void PullStage::NoteError(Error error) {
  if (status_) status_ = std::unexpected(std::move(error));
}

void PullStage::Complete(BatchRows* rows) {
  trace_->Add("pull", kPullTrack, rows->asked_at, Trace::SteadyClock::now());
  if (--batches_waiting_ == 0) busy_seconds_ += SecondsSince(busy_since_);
}

double PullStage::busy_seconds() const {
  return batches_waiting_ == 0 ? busy_seconds_ : busy_seconds_ + SecondsSince(busy_since_);
}

Status PullStage::Read(BatchRows* rows, kernels::Stream* user) {
  if (place_ == nullptr) return {};
  for (std::size_t t = 0; t < hot_.size(); ++t) {
    if (hot_[t] == nullptr) continue;
    const auto placed = hot_[t]->Read(&rows->hot[t]);
    if (!placed) return std::unexpected(placed.error());
    rows->placed[t] = *placed;
  }
  place_->HandOver(user);
  return {};
}

void PullStage::End(BatchRows* rows, bool pushed) {
  for (std::size_t t = 0; t < hot_.size(); ++t) {
    if (hot_[t] == nullptr) continue;
    if (pushed) hot_[t]->Push(rows->hot[t]);
    hot_[t]->End(&rows->hot[t]);
    if (!rows->plans[t]->keys.empty()) client_->CountPull(rows->hot[t].staleness());
  }
  spare_.push_back(std::move(rows->hot));
}

std::uint64_t PullStage::hot_looked_for() const {
  std::uint64_t rows = 0;
  for (const auto& table : hot_) rows += table == nullptr ? 0 : table->looked_for();
  return rows;
}

std::uint64_t PullStage::hot_found() const {
  std::uint64_t rows = 0;
  for (const auto& table : hot_) rows += table == nullptr ? 0 : table->found();
  return rows;
}

}  // namespace tarn::worker
