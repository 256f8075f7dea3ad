#include "worker/train/hot_tables.h"

#include <fmt/format.h>

#include <string_view>

#include "core/byte_size.h"
#include "core/log.h"
#include "worker/client/client_cache.h"
#include "worker/client/pull_memory.h"
#include "worker/train/stepper.h"

namespace tarn::worker {
namespace {

bool MayKeepHotRows(const TableSpec& spec) {
  return spec.kind == TableKind::kSparse && spec.consistency.mode != ConsistencyMode::kAsp && !NeedsPulled(spec);
}

// Why training finds few or no cached rows of a table; empty: it may find many.
std::string_view WhyFewAreFound(const ConsistencySpec& consistency, OwnPushes own_pushes) {
  if (SeesOwnPushes(consistency, own_pushes))
    return "with own_pushes = \"seen\" a push removes its rows from the cache; \"bounded\" keeps them";
  if (consistency.mode == ConsistencyMode::kBsp)
    return "with mode = \"bsp\" a cached row is valid only within its clock; \"ssp\" reuses rows for longer";
  return {};
}

void WarnOfRowsThatAreRarelyFound(const Job& job, std::span<const TableUse> uses) {
  for (const TableUse& use : uses) {
    if (!MayKeepHotRows(use.spec)) continue;
    const OwnPushes own_pushes = WorkerCacheOf(job, use.spec.name).own_pushes;
    if (const std::string_view why = WhyFewAreFound(use.spec.consistency, own_pushes); !why.empty())
      LogWarning("train.hot_rows: training will find few or no rows of table '{}': {}", use.spec.name, why);
  }
}

}  // namespace

Expected<HotTables> HotTables::Make(const Job& job, std::span<const TableUse> uses, std::uint32_t rank) {
  HotTables hot;
  hot.tables_.resize(uses.size());
  if (job.train.hot_rows.rows == 0) return hot;
  WarnOfRowsThatAreRarelyFound(job, uses);
  for (std::size_t t = 0; t < uses.size(); ++t) {
    const TableSpec& spec = uses[t].spec;
    if (!MayKeepHotRows(spec)) continue;
    const WorkerCacheSpec& cache = WorkerCacheOf(job, spec.name);
    if (cache.bytes != 0)
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("train.hot_rows = {} with worker_cache = {} for table '{}': its rows would be kept twice; "
                      "expected one of the two",
                      job.train.hot_rows.rows, ToByteSize(cache.bytes), spec.name));
    if (hot.place_ == nullptr) {
      auto place = MakePlace(GpuFor(job.train, rank));
      if (!place) return std::unexpected(std::move(place).error());
      hot.place_ = std::move(*place);
    }
    auto table = HotTable::Make(hot.place_.get(), spec, {.keep = job.train.hot_rows, .own_pushes = cache.own_pushes});
    if (!table) return std::unexpected(table.error());
    hot.tables_[t] = std::move(*table);
  }
  return hot;
}

std::vector<HotBatch> HotTables::MakeBatch() {
  if (spare_.empty()) return std::vector<HotBatch>(tables_.size());
  std::vector<HotBatch> batch = std::move(spare_.back());
  spare_.pop_back();
  return batch;
}

Status HotTables::Read(std::vector<HotBatch>* batch, std::vector<const float*>* placed, kernels::Stream* user) {
  if (place_ == nullptr) return {};
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t] == nullptr) continue;
    const auto rows = tables_[t]->Read(&(*batch)[t]);
    if (!rows) return std::unexpected(rows.error());
    (*placed)[t] = *rows;
  }
  place_->HandOver(user);
  return {};
}

void HotTables::Clear() {
  for (const auto& table : tables_)
    if (table != nullptr) table->Clear();
}

std::uint64_t HotTables::looked_for() const {
  std::uint64_t rows = 0;
  for (const auto& table : tables_) rows += table == nullptr ? 0 : table->looked_for();
  return rows;
}

std::uint64_t HotTables::found() const {
  std::uint64_t rows = 0;
  for (const auto& table : tables_) rows += table == nullptr ? 0 : table->found();
  return rows;
}

}  // namespace tarn::worker
