#include "worker/train/batch_planner.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "core/position.h"

namespace tarn::worker {

BatchPlanner::BatchPlanner(const Job& job, std::vector<TableUse> tables, const BatchPlannerOptions& options)
    : options_(options), tables_(std::move(tables)), host_(options.partition_bits) {
  for (const TableUse& use : tables_) positioners_.emplace_back(use.spec, TableSalt(job.job.seed, use.spec.name));
}

BatchPlanner::BatchPlanner(BatchPlanner&&) noexcept = default;
BatchPlanner::~BatchPlanner() = default;

Status BatchPlanner::Make(std::vector<Key>* keys, std::vector<Plan>* plans) {
  plans->resize(tables_.size());
  if (!OnDevice(keys->size())) {
    MakeOnHost(*keys, plans);
    return {};
  }
  const Status made = MakeOnDevice(keys, plans);
  if (made) return {};
  const std::string_view advice =
      made.error().code == ErrorCode::kIo ? "; reduce train.batch_rows or train.prefetch" : "";
  return Fail(made.error().code, fmt::format("planning {} keys: {}{}", keys->size(), made.error().message, advice));
}

// Tables with a bias are planned after those without.
void BatchPlanner::MakeOnHost(std::span<const Key> keys, std::vector<Plan>* plans) {
  const auto place_all = [&](RowsNeeded rows) {
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      if (tables_[t].rows != rows) continue;
      const TableSpec& spec = tables_[t].spec;
      Plan* const plan = &(*plans)[t];
      if (device_ != nullptr) device_->TakeBack(plan);
      host_.Place(spec.id, spec.dim, positioners_[t], plan);
    }
  };
  host_.SetKeys(keys);
  place_all(RowsNeeded::kBatchKeys);
  host_.AddKeys({&kBiasKey, 1});
  place_all(RowsNeeded::kBatchKeysAndBias);
}

// The bias is appended to the keys while planning; a table without a bias is planned without that last key.
Status BatchPlanner::MakeOnDevice(std::vector<Key>* keys, std::vector<Plan>* plans) {
  keys->push_back(kBiasKey);
  Status made = BringToDevice(*keys);
  for (std::size_t t = 0; made && t < tables_.size(); ++t) {
    const auto& [spec, rows] = tables_[t];
    if (rows == RowsNeeded::kAll) continue;
    const std::size_t n = keys->size() - (rows == RowsNeeded::kBatchKeysAndBias ? 0 : 1);
    made = device_->Make(spec.id, spec.dim, positioners_[t], n, &(*plans)[t]);
  }
  keys->pop_back();
  return made;
}

Status BatchPlanner::BringToDevice([[maybe_unused]] std::span<const Key> keys) {
#if TARN_HAS_CUDA
  if (device_ == nullptr) {
    auto device = MakeDevicePlanner(*options_.gpu, options_.partition_bits);
    if (!device) return std::unexpected(std::move(device).error());
    device_ = std::move(*device);
  }
  return device_->Bring(keys);
#else
  return Fail(ErrorCode::kUnsupported, "this build has no CUDA");
#endif
}

}  // namespace tarn::worker
