#include "worker/client/client_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
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

CachedPull::CachedPull(KeptTable* table, const Plan& plan, Clock least)
    : table_(table),
      least_(least),
      dim_(plan.dim),
      rows_(Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float))) {}

RowCache::Found CachedPull::Read(const Plan& plan) {
  return table_->rows.Read(plan.keys, least_, rows_.as_mutable<float>().data(), &missing_);
}

void CachedPull::Keep(const KeyList& keys, const Buffer& frame, std::span<const PlanRun> parts, const Buffer& values,
                      Clock version) {
  const auto rows = values.as<float>();
  std::vector<Key> range(keys.codec == KeyCodec::kRange ? keys.count : 0);
  std::iota(range.begin(), range.end(), keys.first_key);
  std::span<const Key> left = range.empty() ? frame.as<Key>() : range;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Section& section = keys.sections[i];
    const std::span<const Key> here = left.first(section.count);
    left = left.subspan(section.count);
    // Asked for before the last own push here, so that the answer may be without it.
    if (table_->sees_own_pushes && section.sequence < table_->pushed[section.partition.value]) continue;
    table_->rows.Keep(here, rows.data() + std::size_t{parts[i].begin} * dim_, version, least_);
  }
}

Buffer CachedPull::Join(Buffer missing) {
  if (missing.size() == rows_.size()) return missing;
  kernels::ScatterByIndex(dim_, missing_.size(), std::as_const(missing).as<float>().data(), missing_.data(),
                          rows_.as_mutable<float>().data());
  return std::move(rows_);
}

void ClientCache::Begin(std::size_t partitions) {
  const Job& job = desk_->job_file;
  partitions_ = partitions;
  on_ = job.worker_cache.bytes != 0 ||
        std::ranges::any_of(job.tables, [](const auto& table) { return table.second.worker_cache.bytes != 0; });
}

KeptTable* ClientCache::Find(const TableSpec& spec) {
  const auto [it, fresh] = tables_.try_emplace(spec.id);
  if (!fresh) return it->second.get();
  const WorkerCacheSpec& cache = WorkerCacheOf(desk_->job_file, spec.name);
  if (cache.bytes == 0 || spec.consistency.mode == ConsistencyMode::kAsp) return nullptr;
  const std::uint64_t rows_max = spec.kind == TableKind::kDense ? spec.rows : std::numeric_limits<std::uint64_t>::max();
  const bool sees_own = SeesOwnPushes(spec.consistency, cache.own_pushes);
  try {
    it->second.reset(
        new KeptTable{RowCache(cache.bytes, spec.dim, rows_max), sees_own, std::vector<Sequence>(partitions_)});
  } catch (const std::exception&) {  // std::bad_alloc, or more than a vector may ever hold
    desk_->Stop(ErrorCode::kTooLarge, fmt::format("worker_cache = {} for {}: this machine has no memory for it",
                                                  ToByteSize(cache.bytes), desk_->NameOf(spec.id)));
  }
  return it->second.get();
}

std::unique_ptr<CachedPull> ClientCache::Look(KeptTable* table, const TableSpec& spec, const Plan& plan, Clock use) {
  auto pull = std::make_unique<CachedPull>(table, plan, OldestAllowed(spec.consistency, use));
  const RowCache::Found found = pull->Read(plan);
  desk_->counters.cache_rows += plan.keys.size();
  desk_->counters.cache_hits += found.rows;
  if (found.rows != 0 && use > found.oldest) pull->staleness = use.value - found.oldest.value;
  return pull;
}

void ClientCache::OnPush(KeptTable* table, const Plan& plan, const ClientPushes& pushes) {
  if (!table->sees_own_pushes) return;
  table->rows.Drop(plan.keys);
  for (const PlanRun& run : plan.runs) table->pushed[run.partition.value] = pushes.LastSequence(run.partition);
}

void ClientCache::Clear() {
  for (auto& [id, table] : tables_)
    if (table != nullptr) table->rows.Clear();
}

std::uint64_t ClientCache::Hash() const { return HashCombine(desk_->counters.cache_rows, desk_->counters.cache_hits); }

}  // namespace tarn::worker
