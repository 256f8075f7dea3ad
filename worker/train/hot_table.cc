#include "worker/train/hot_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "worker/client_cache.h"

namespace tarn::worker {
namespace {

// Scores are halved whenever so many rows have been looked for as the cache holds, times this: the sample of TinyLFU.
constexpr std::uint64_t kLooksPerRow = 10;

}  // namespace

Status HotBatch::Array::Reserve(RowPlace* place, std::size_t bytes, std::string_view what) {
  if (memory != nullptr && memory->size() >= bytes) return {};
  memory.reset();
  auto array = place->Allocate(std::max<std::size_t>(bytes, 1), what);
  if (!array) return std::unexpected(array.error());
  memory = std::move(*array);
  return {};
}

Expected<std::unique_ptr<HotTable>> HotTable::Make(RowPlace* place, const TableSpec& spec,
                                                   const HotTableOptions& options) {
  std::unique_ptr<HotTable> table(new HotTable(place, spec, options));
  auto cache = place->MakeHotRows({.dim = spec.dim,
                                   .rows = options.keep.rows,
                                   .batch_keys_max = options.keys_at_once,
                                   .score = options.keep.score});
  if (!cache)
    return Fail(
        cache.error().code,
        fmt::format("hot_rows = {} for table '{}': {}; each worker keeps so many of each sparse table, {} bytes "
                    "a row: expected fewer",
                    options.keep.rows, spec.name, cache.error().message, kernels::HotRowBytes(spec.dim)));
  table->cache_ = std::move(*cache);
  return table;
}

Status HotTable::Reserve(const Plan& plan, HotBatch* batch) {
  const std::size_t keys = plan.keys.size(), parts = (keys + options_.keys_at_once - 1) / options_.keys_at_once;
  TARN_RETURN_IF_ERROR(batch->keys_array_.Reserve(place_, keys * sizeof(Key), "a batch's keys"));
  TARN_RETURN_IF_ERROR(batch->slots_.Reserve(place_, keys * sizeof(std::uint32_t), "a batch's slots"));
  TARN_RETURN_IF_ERROR(batch->absent_.Reserve(place_, keys * sizeof(std::uint32_t), "a batch's missing rows"));
  return batch->counts_.Reserve(place_, parts * sizeof(std::uint64_t), "a batch's counts");
}

Status HotTable::Look(const Plan& plan, Clock use, HotBatch* batch) {
  TARN_RETURN_IF_ERROR(Reserve(plan, batch));
  const std::size_t n = plan.keys.size();
  batch->number_ = begun_++;
  batch->use_ = use;
  batch->parts_.clear();
  batch->missing_at_.clear();
  batch->keys_ =
      static_cast<const Key*>(place_->Bring(plan.keys.data(), n * sizeof(Key), batch->keys_array_.memory.get()));
  for (std::size_t begin = 0; begin < n; begin += options_.keys_at_once)
    TARN_RETURN_IF_ERROR(LookForPart(OldestAllowed(spec_.consistency, use), begin,
                                     std::min<std::size_t>(n - begin, options_.keys_at_once), batch));
  batch->missing_ = PartOf(plan, batch->missing_at_);
  batch->arrived_ = batch->missing_at_.empty();
  looked_for_ += n;
  found_ += n - batch->missing_at_.size();
  Age();
  return {};
}

Status HotTable::LookForPart(Clock least, std::size_t begin, std::size_t count, HotBatch* batch) {
  const Key* keys = batch->keys_ + begin;
  auto* slots = batch->slots_.as<std::uint32_t>() + begin;
  auto* absent = batch->absent_.as<std::uint32_t>() + begin;
  auto* missing_there = batch->counts_.as<std::uint32_t>();
  cache_->Find(count, keys, least, slots, absent, missing_there);
  cache_->Insert(count, keys, least, slots);
  std::uint32_t missing = 0;
  place_->Fetch(missing_there, sizeof missing, &missing);
  TARN_RETURN_IF_ERROR(place_->Wait());
  absent_.resize(missing);
  place_->Fetch(absent, missing * sizeof(std::uint32_t), absent_.data());
  TARN_RETURN_IF_ERROR(place_->Wait());
  for (const std::uint32_t i : absent_) batch->missing_at_.push_back(static_cast<std::uint32_t>(begin) + i);
  batch->parts_.push_back({begin, count, missing});
  return {};
}

void HotTable::Age() {
  if (looked_for_ - aged_at_ < kLooksPerRow * cache_->capacity()) return;
  aged_at_ = looked_for_;
  cache_->Age();
}

Status HotTable::Arrive(Buffer values, Clock version, HotBatch* batch) {
  const std::size_t bytes = batch->missing_at_.size() * spec_.dim * sizeof(float);
  TARN_CHECK(!batch->arrived_ && values.size() == bytes, "once, a row for each key that is missing");
  TARN_RETURN_IF_ERROR(batch->rows_array_.Reserve(place_, bytes, "a batch's pulled rows"));
  batch->values_ = std::move(values);
  batch->rows_ = static_cast<const float*>(
      place_->Bring(std::as_const(batch->values_).data(), bytes, batch->rows_array_.memory.get()));
  batch->version_ = version;
  batch->arrived_ = true;
  const float* rows = batch->rows_;
  for (const HotBatch::Part& part : batch->parts_) {
    cache_->Fill(part.missing, batch->absent_.as<std::uint32_t>() + part.begin,
                 batch->slots_.as<std::uint32_t>() + part.begin, rows, version);
    rows += part.missing * spec_.dim;
  }
  return {};
}

// What has arrived goes to its places first: there may be no slot for some of it.
void HotTable::Read(HotBatch* batch, float* out) {
  TARN_CHECK(batch->arrived_ && batch->number_ == ended_, "batches read in the order in which they looked");
  const float* rows = batch->rows_;
  batch->oldest_.assign(batch->parts_.size(), 0);
  for (std::size_t p = 0; p < batch->parts_.size(); ++p) {
    const HotBatch::Part& part = batch->parts_[p];
    const auto* slots = batch->slots_.as<std::uint32_t>() + part.begin;
    float* here = out + part.begin * spec_.dim;
    if (part.missing != 0)
      place_->Scatter(spec_.dim, part.missing, rows, batch->absent_.as<std::uint32_t>() + part.begin, here);
    cache_->Read(part.count, slots, here);
    cache_->Oldest(part.count, slots, batch->counts_.as<std::uint64_t>() + p);
    rows += part.missing * spec_.dim;
  }
  place_->Fetch(batch->counts_.as<std::uint64_t>(), batch->oldest_.size() * sizeof(std::uint64_t),
                batch->oldest_.data());
}

void HotTable::Push(const HotBatch& batch) {
  if (!SeesOwnPushes(spec_.consistency, options_.own_pushes)) return;
  for (const HotBatch::Part& part : batch.parts_) cache_->Evict(part.count, batch.keys_ + part.begin);
}

Status HotTable::End(HotBatch* batch) {
  TARN_CHECK(batch->arrived_ && batch->number_ == ended_, "batches end in the order in which they looked");
  ++ended_;
  for (const HotBatch::Part& part : batch->parts_)
    cache_->Unpin(part.count, batch->slots_.as<std::uint32_t>() + part.begin);
  TARN_RETURN_IF_ERROR(place_->Wait());
  std::uint64_t oldest = batch->missing_at_.empty() ? std::numeric_limits<std::uint64_t>::max() : batch->version_.value;
  for (const std::uint64_t version : batch->oldest_) oldest = std::min(oldest, version);
  batch->staleness_ = batch->use_.value - std::min(batch->use_.value, oldest);
  batch->values_ = {};
  return {};
}

}  // namespace tarn::worker
