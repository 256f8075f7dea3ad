#include "worker/client/client_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "core/byte_size.h"
#include "core/hash.h"
#include "kernels/rows.h"
#include "worker/client/client_pushes.h"

namespace tarn::worker {

Clock OldestAllowed(const ConsistencySpec& consistency, Clock use) {
  const std::uint64_t bound = consistency.mode == ConsistencyMode::kSsp ? consistency.staleness : 0;
  return Clock(use.value - std::min(use.value, bound));
}

bool SeesOwnPushes(const ConsistencySpec& consistency, OwnPushes own_pushes) {
  return own_pushes == OwnPushes::kSeen && consistency.apply == ApplyMode::kImmediate;
}

CachedPull::CachedPull(CachedTable* table, const Plan& plan, Clock oldest_version, PullSink* caller)
    : table_(table),
      oldest_version_(oldest_version),
      caller_(caller),
      plan_rows_(plan.keys.size()),
      dim_(plan.dim),
      rows_(Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float))),
      found_(table->rows.Read(plan.keys, oldest_version, rows_.as_mutable<float>().data(), &places_)),
      missing_(PartOf(plan, places_)),
      fetched_(missing_) {}

std::uint64_t CachedPull::StalenessAt(Clock use) const {
  return found_.rows != 0 && use > found_.oldest ? use.value - found_.oldest.value : 0;
}

void CachedPull::Cache(std::span<const PlanRun> parts, std::span<const Section> sections, Clock version) {
  const float* rows = fetched_.values().as<float>().data();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (table_->MissesOwnPushes(sections[i])) continue;
    table_->rows.Insert(std::span(missing_.keys).subspan(parts[i].begin, parts[i].count),
                        rows + std::size_t{parts[i].begin} * dim_, version, oldest_version_);
  }
}

void CachedPull::Done(std::uint64_t staleness) {
  if (missing_.keys.size() == plan_rows_)
    rows_ = fetched_.Release();
  else if (!missing_.keys.empty())
    kernels::ScatterByIndex(dim_, places_.size(), fetched_.values().as<float>().data(), places_.data(),
                            rows_.as_mutable<float>().data());
  const PlanRun all{.partition = {}, .begin = 0, .count = static_cast<std::uint32_t>(plan_rows_)};
  if (record_ != nullptr) record_->NoteRows({{&all, 1}, ValueCodec::kFp32, rows_});
  caller_->Rows({{&all, 1}, ValueCodec::kFp32, rows_});
  caller_->Done(staleness);
}

void ClientCache::Begin(std::size_t partitions) {
  const Job& job = context_->job_file;
  partitions_ = partitions;
  on_ = job.worker_cache.bytes != 0 ||
        std::ranges::any_of(job.tables, [](const auto& table) { return table.second.worker_cache.bytes != 0; });
}

CachedTable* ClientCache::Find(const TableSpec& spec) {
  const auto [it, fresh] = tables_.try_emplace(spec.id);
  if (!fresh) return it->second.get();
  const WorkerCacheSpec& cache = WorkerCacheOf(context_->job_file, spec.name);
  if (cache.bytes == 0 || spec.consistency.mode == ConsistencyMode::kAsp) return nullptr;
  const std::uint64_t rows_max = spec.kind == TableKind::kDense ? spec.rows : std::numeric_limits<std::uint64_t>::max();
  const bool sees_own = SeesOwnPushes(spec.consistency, cache.own_pushes);
  try {
    it->second.reset(
        new CachedTable{RowCache(cache.bytes, spec.dim, rows_max), sees_own, std::vector<Sequence>(partitions_)});
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error: more than a vector can hold
    context_->Stop(ErrorCode::kTooLarge, fmt::format("worker_cache = {} for {}: this machine has no memory for it",
                                                     ToByteSize(cache.bytes), context_->NameOf(spec.id)));
  }
  return it->second.get();
}

std::unique_ptr<CachedPull> ClientCache::Look(CachedTable* table, const TableSpec& spec, const Plan& plan, Clock use,
                                              PullSink* caller) {
  auto pull = std::make_unique<CachedPull>(table, plan, OldestAllowed(spec.consistency, use), caller);
  context_->counters.cache_rows += plan.keys.size();
  context_->counters.cache_hits += pull->found().rows;
  return pull;
}

void ClientCache::OnPush(CachedTable* table, const Plan& plan, const ClientPushes& pushes) {
  if (!table->sees_own_pushes) return;
  table->rows.Drop(plan.keys);
  for (const PlanRun& run : plan.runs) table->pushed[run.partition.value] = pushes.LastSequence(run.partition);
}

void ClientCache::Clear() {
  for (auto& [id, table] : tables_)
    if (table != nullptr) table->rows.Clear();
}

std::uint64_t ClientCache::Hash() const {
  return HashCombine(context_->counters.cache_rows, context_->counters.cache_hits);
}

}  // namespace tarn::worker
