#include "worker/train/hot_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "worker/client/client_cache.h"

namespace tarn::worker {
namespace {

// Scores are halved after this many look-ups per row of capacity: TinyLFU's sample size.
constexpr std::uint64_t kLooksPerRow = 10;

// Whether the plan's keys are in the place already: its GPU made the plan.
bool KeysArePlaced(const Plan& plan, const RowPlace& place) {
  return plan.placed != nullptr && place.gpu() == plan.placed->gpu;
}

}  // namespace

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
  const std::size_t words = keys * sizeof(std::uint32_t), counts = parts * sizeof(std::uint64_t);
  TARN_RETURN_IF_ERROR(batch->slots_.Reserve(place_, words, "a batch's slots"));
  TARN_RETURN_IF_ERROR(batch->absent_.Reserve(place_, words, "a batch's missing rows", Exchanged::kYes));
  return batch->counts_.Reserve(place_, counts, "a batch's counts", Exchanged::kYes);
}

// Uses the plan's own keys if they are in the place. Copies them if Push evicts rows, because it does so on the place's
// stream, possibly after the reader has reused the plan's memory.
Status HotTable::BringKeys(const Plan& plan, HotBatch* batch) {
  if (KeysArePlaced(plan, *place_) && !SeesOwnPushes(spec_.consistency, options_.own_pushes)) {
    batch->keys_ = plan.placed->keys;
    return {};
  }
  const auto keys =
      place_->Bring(plan.keys.data(), plan.keys.size() * sizeof(Key), "a batch's keys", &batch->keys_room_);
  if (!keys) return std::unexpected(keys.error());
  batch->keys_ = static_cast<const Key*>(*keys);
  return {};
}

Status HotTable::Look(const Plan& plan, Clock use, HotBatch* batch) {
  TARN_RETURN_IF_ERROR(Reserve(plan, batch));
  const std::size_t n = plan.keys.size();
  batch->number_ = begun_++;
  batch->use_ = use;
  batch->parts_.clear();
  batch->missing_at_.clear();
  batch->read_ = false;
  TARN_RETURN_IF_ERROR(BringKeys(plan, batch));
  for (std::size_t begin = 0; begin < n; begin += options_.keys_at_once)
    TARN_RETURN_IF_ERROR(LookForPart(OldestAllowed(spec_.consistency, use), begin,
                                     std::min<std::size_t>(n - begin, options_.keys_at_once), batch));
  batch->missing_ = PartOf(plan, batch->missing_at_);
  batch->arrived_.Begin(!batch->missing_at_.empty());
  looked_for_ += n;
  found_ += n - batch->missing_at_.size();
  Age();
  return {};
}

Status HotTable::LookForPart(Clock least, std::size_t begin, std::size_t count, HotBatch* batch) {
  const Key* keys = batch->keys_ + begin;
  auto* slots = batch->slots_.as<std::uint32_t>() + begin;
  auto* absent = batch->absent_.as<std::uint32_t>() + begin;
  cache_->Find(count, keys, least, slots, absent, batch->counts_.as<std::uint32_t>());
  place_->Fetch(batch->counts_.array(), 0, sizeof(std::uint32_t));
  cache_->Insert(count, keys, least, slots);
  TARN_RETURN_IF_ERROR(place_->Wait());
  const std::uint32_t missing = *batch->counts_.host<std::uint32_t>();
  place_->Fetch(batch->absent_.array(), begin * sizeof(std::uint32_t), missing * sizeof(std::uint32_t));
  TARN_RETURN_IF_ERROR(place_->Wait());
  for (const std::uint32_t i : std::span(batch->absent_.host<std::uint32_t>() + begin, missing))
    batch->missing_at_.push_back(static_cast<std::uint32_t>(begin) + i);
  batch->parts_.push_back({begin, count, missing});
  return {};
}

Clock HotTable::OldestAllowedAt(Clock use) const { return OldestAllowed(spec_.consistency, use); }

void HotTable::Age() {
  if (looked_for_ - aged_at_ < kLooksPerRow * cache_->capacity()) return;
  aged_at_ = looked_for_;
  cache_->Age();
}

Status HotTable::Arrive(Buffer values, Clock version, HotBatch* batch) {
  const std::size_t bytes = batch->missing_at_.size() * spec_.dim * sizeof(float);
  TARN_CHECK(!batch->arrived_.complete() && values.size() == bytes, "once, a row for each key that is missing");
  TARN_RETURN_IF_ERROR(batch->arrived_.Bring(place_, std::move(values), version));
  const float* rows = batch->arrived_.data();
  for (const HotBatch::Part& part : batch->parts_) {
    cache_->Fill(part.missing, batch->absent_.as<std::uint32_t>() + part.begin,
                 batch->slots_.as<std::uint32_t>() + part.begin, rows, version);
    rows += part.missing * spec_.dim;
  }
  return {};
}

// Copies the arrived rows first: some of them have no slot in the cache, and the cache's Read skips those.
Expected<const float*> HotTable::Read(HotBatch* batch) {
  TARN_CHECK(batch->arrived_.complete() && batch->number_ == std::max(next_read_, ended_),
             "batches read in the order in which they looked");
  next_read_ = batch->number_ + 1;
  std::size_t keys = 0;
  for (const HotBatch::Part& part : batch->parts_) keys += part.count;
  if (!spare_.empty()) {
    batch->all_rows_ = std::move(spare_.back());
    spare_.pop_back();
  }
  TARN_RETURN_IF_ERROR(batch->all_rows_.Reserve(place_, keys * spec_.dim * sizeof(float), "a batch's rows"));
  const float* rows = batch->arrived_.data();
  for (std::size_t p = 0; p < batch->parts_.size(); ++p) {
    const HotBatch::Part& part = batch->parts_[p];
    const auto* slots = batch->slots_.as<std::uint32_t>() + part.begin;
    float* here = batch->all_rows_.as<float>() + part.begin * spec_.dim;
    if (part.missing != 0)
      place_->Scatter(spec_.dim, part.missing, rows, batch->absent_.as<std::uint32_t>() + part.begin, here);
    cache_->Read(part.count, slots, here);
    cache_->Oldest(part.count, slots, batch->counts_.as<std::uint64_t>() + p);
    rows += part.missing * spec_.dim;
  }
  place_->Fetch(batch->counts_.array(), 0, batch->parts_.size() * sizeof(std::uint64_t));
  batch->read_ = true;
  return batch->all_rows_.as<float>();
}

void HotTable::Push(const HotBatch& batch) {
  if (!SeesOwnPushes(spec_.consistency, options_.own_pushes)) return;
  for (const HotBatch::Part& part : batch.parts_) cache_->Evict(part.count, batch.keys_ + part.begin);
}

void HotTable::End(HotBatch* batch) {
  TARN_CHECK(batch->arrived_.complete() && batch->number_ == ended_, "batches end in the order in which they looked");
  ++ended_;
  for (const HotBatch::Part& part : batch->parts_)
    cache_->Unpin(part.count, batch->slots_.as<std::uint32_t>() + part.begin);
  std::uint64_t oldest =
      batch->missing_at_.empty() ? std::numeric_limits<std::uint64_t>::max() : batch->arrived_.version().value;
  if (batch->read_)
    for (const std::uint64_t version : std::span(batch->counts_.host<std::uint64_t>(), batch->parts_.size()))
      oldest = std::min(oldest, version);
  batch->staleness_ = batch->use_.value - std::min(batch->use_.value, oldest);
  batch->arrived_.Release();
  if (batch->read_) spare_.push_back(std::move(batch->all_rows_));
}

}  // namespace tarn::worker
