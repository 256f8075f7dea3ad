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

// The bias is appended to the keys while planning; a table without a bias is planned without that last key.
Status BatchPlanner::Make(std::vector<Key>* keys, std::vector<Plan>* plans) {
  plans->resize(tables_.size());
  const std::size_t of_batch = keys->size();
  const bool on_device = OnDevice(of_batch);
  keys->push_back(kBiasKey);
  Status made = on_device ? BringToDevice(*keys) : Status();
  for (std::size_t t = 0; made && t < tables_.size(); ++t) {
    const auto& [spec, rows] = tables_[t];
    if (rows == RowsNeeded::kAll) continue;
    Plan* const plan = &(*plans)[t];
    const std::size_t n = of_batch + (rows == RowsNeeded::kBatchKeysAndBias ? 1 : 0);
    if (on_device) {
      made = device_->Make(spec.id, spec.dim, positioners_[t], n, plan);
    } else {
      if (device_ != nullptr) device_->TakeBack(plan);
      host_.Make(spec.id, spec.dim, positioners_[t], std::span(*keys).first(n), plan);
    }
  }
  keys->pop_back();
  if (made) return {};
  const std::string_view advice =
      made.error().code == ErrorCode::kIo ? "; reduce train.batch_rows or train.prefetch" : "";
  return Fail(made.error().code, fmt::format("planning {} keys: {}{}", of_batch, made.error().message, advice));
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
