#include "bench/scale_model/workload.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "worker/train/batch_planner.h"
#include "worker/train/batch_reader.h"

namespace tarn::scale {

Expected<std::unique_ptr<Workload>> Workload::Make(const Job& job, const WorkloadOptions& options) {
  auto set = worker::Dataset::Open(job.data, job.data.train);
  if (!set) return std::unexpected(set.error());
  const worker::ModelShape shape{(*set)->fields(), (*set)->dense_columns(), job.data.classes};
  auto model = worker::MakeModel(job, shape);
  if (!model) return std::unexpected(model.error());
  std::unique_ptr<Workload> made(new Workload);
  made->batch_rows_ = options.batch_rows;
  made->uses_ = (*model)->tables();
  for (std::size_t t = 0; t < made->uses_.size(); ++t) {
    TableSpec& spec = made->uses_[t].spec;
    spec.id = TableId(static_cast<std::uint32_t>(t));
    made->wire_dims_.push_back(spec.dim);
    if (!options.small_rows) continue;
    spec.dim = 1;
    spec.initializer = {};
    spec.optimizer = {};
  }
  std::vector<worker::Batch> batches(
      std::clamp<std::uint64_t>((*set)->rows() / options.batch_rows, 1, std::max(1u, options.batches)));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    // A set with fewer rows than a batch is one batch.
    const std::uint64_t rows = std::min<std::uint64_t>(options.batch_rows, (*set)->rows());
    TARN_RETURN_IF_ERROR(worker::ReadRows(**set, job, LeasePurpose::kTrain, 0, i * rows, rows, &batches[i]));
  }
  made->MakePlans(job, batches);
  made->CountDistinct();
  return made;
}

void Workload::MakePlans(const Job& job, const std::vector<worker::Batch>& batches) {
  dense_plans_.resize(uses_.size());
  for (std::size_t t = 0; t < uses_.size(); ++t)
    if (dense(t)) dense_plans_[t] = worker::PlanOfAll(uses_[t].spec, job.job.seed, job.fleet.partition_bits);
  worker::BatchPlanner planner(job, uses_, {.partition_bits = job.fleet.partition_bits});
  for (const worker::Batch& batch : batches) {
    std::vector<worker::Plan>& plans = plans_.emplace_back();
    std::vector<Key> keys = batch.keys;
    const Status made = planner.Make(&keys, &plans);
    TARN_CHECK(made.has_value(), "only planning on a GPU can fail");
    for (const worker::Plan& plan : plans)
      mean_rows_ += static_cast<double>(plan.keys.size()) / static_cast<double>(batches.size());
  }
}

void Workload::CountDistinct() {
  std::size_t next = 1;
  std::vector<std::unordered_set<Key>> seen(uses_.size());
  double all = 0, distinct = 0;
  for (std::size_t b = 0; b < plans_.size(); ++b) {
    for (std::size_t t = 0; t < uses_.size(); ++t) {
      all += static_cast<double>(plans_[b][t].keys.size());
      for (const Key key : plans_[b][t].keys) distinct += seen[t].insert(key).second ? 1 : 0;
    }
    if (b + 1 != next) continue;
    distinct_.push_back(all > 0 ? distinct / all : 1);
    next *= 2;
  }
}

// Interpolates between the counts on logarithmic scales, and extrapolates with the last slope.
double Workload::DistinctShare(double batches) const {
  if (distinct_.size() < 2 || batches <= 1) return distinct_.front();
  const double at = std::log2(batches);
  const std::size_t low = std::min(static_cast<std::size_t>(at), distinct_.size() - 2);
  const double slope = std::log2(distinct_[low + 1] / distinct_[low]);
  return distinct_[low] * std::exp2(slope * (at - static_cast<double>(low)));
}

std::size_t Workload::IndexOf(TableId id) const {
  for (std::size_t t = 0; t < uses_.size(); ++t)
    if (uses_[t].spec.id == id) return t;
  TARN_CHECK(false, "a message names a table that is not in the workload");
  return 0;
}

void Workload::SetId(const TableSpec& spec) {
  const auto use = std::ranges::find(uses_, spec.name, [](const worker::TableUse& u) { return u.spec.name; });
  TARN_CHECK(use != uses_.end(), "the scheduler has a table that is not in the workload");
  if (use->spec.id == spec.id) return;
  const auto t = static_cast<std::size_t>(use - uses_.begin());
  use->spec.id = spec.id;
  dense_plans_[t].table = spec.id;
  for (auto& plans : plans_) plans[t].table = spec.id;
}

}  // namespace tarn::scale
