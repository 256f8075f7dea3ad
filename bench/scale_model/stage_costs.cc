#include "bench/scale_model/stage_costs.h"

#include <algorithm>
#include <barrier>
#include <memory>
#include <optional>
#include <thread>

#include "bench/scale_model/meter.h"
#include "core/position.h"
#include "server/row_store.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/plan.h"
#include "worker/train/batch_source.h"
#include "worker/train/stepper.h"

namespace tarn::scale {
namespace {

constexpr std::uint32_t kBatchRows[] = {256, 2048, 16384};
constexpr std::uint32_t kLeast = 5;  // batches of a size

// One worker's work on batches of one size, with rows of a store of its own.
class Stages {
 public:
  static Expected<std::unique_ptr<Stages>> Make(const Job& job, const worker::Dataset& set, std::uint32_t batch_rows) {
    std::unique_ptr<Stages> made(new Stages(job, set, batch_rows));
    auto model = worker::MakeModel(job, {set.fields(), set.dense_columns(), job.data.classes});
    if (!model) return std::unexpected(model.error());
    made->model_ = std::move(*model);
    made->uses_ = made->model_->tables();
    server::RowStoreOptions options{job.job.seed, job.fleet.partition_bits, {}};
    for (std::uint32_t p = 0; p < (1u << job.fleet.partition_bits); ++p) options.owned.push_back(PartitionId(p));
    made->rows_ = std::make_unique<server::RowStore>(std::move(options));
    for (std::uint32_t t = 0; t < made->uses_.size(); ++t) {
      made->uses_[t].spec.id = TableId(t);
      TARN_RETURN_IF_ERROR(made->rows_->AddTable(made->uses_[t].spec));
    }
    made->stepper_ = std::make_unique<worker::Stepper>(made->model_.get(), 1.0f / float(batch_rows),
                                                       job.train.clip_global_norm);
    made->plans_.resize(made->uses_.size());
    made->MakePlans(true);
    return made;
  }

  // One batch; adds what it took. `number`: which of the set.
  Status Step(std::uint64_t number) {
    const std::uint64_t batches = std::max<std::uint64_t>(1, set_.rows() / batch_rows_);
    const std::uint64_t rows = std::min<std::uint64_t>(batch_rows_, set_.rows());
    meter_.Begin();
    TARN_RETURN_IF_ERROR(
        worker::ReadRows(set_, job_, LeasePurpose::kTrain, 0, number % batches * rows, rows, &batch_));
    meter_.Add(Work::kRead, {{1, double(rows)}, meter_.Lap()});
    MakePlans(false);
    meter_.Add(Work::kPlan, {{1, double(rows)}, meter_.Lap()});
    std::vector<const worker::Plan*> plans;
    std::vector<Buffer> values;
    for (std::size_t t = 0; t < uses_.size(); ++t) {
      const worker::Plan& plan = plans_[t];
      std::vector<Section> sections;
      for (const worker::PlanRun& run : plan.runs) sections.push_back({run.partition, run.count, Sequence(0)});
      plans.push_back(&plan);
      values.push_back(Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float)));
      rows_->Gather(uses_[t].spec.id, sections, plan.keys, ValueCodec::kFp32, values[t].data());
    }
    meter_.Begin();
    const auto gradients = stepper_->Run(batch_, plans, values, true, &quality_);
    meter_.Add(Work::kCompute, {{1, double(rows)}, meter_.Lap()});
    return {};
  }

  const Meter& meter() const { return meter_; }

 private:
  Stages(const Job& job, const worker::Dataset& set, std::uint32_t batch_rows)
      : job_(job), set_(set), batch_rows_(batch_rows), planner_(job.fleet.partition_bits) {}

  void MakePlans(bool dense) {
    for (std::size_t t = 0; t < uses_.size(); ++t) {
      const TableSpec& spec = uses_[t].spec;
      if ((uses_[t].rows == worker::RowsNeeded::kAll) != dense) continue;
      std::vector<Key> keys = batch_.keys;
      if (dense) keys.resize(spec.rows);
      for (Key i = 0; dense && i < spec.rows; ++i) keys[i] = i;
      if (uses_[t].rows == worker::RowsNeeded::kBatchKeysAndBias) keys.push_back(worker::kBiasKey);
      planner_.Make(spec.id, spec.dim, Positioner(spec, TableSalt(job_.job.seed, spec.name)), keys, &plans_[t]);
    }
  }

  const Job& job_;
  const worker::Dataset& set_;
  std::uint32_t batch_rows_;
  worker::Planner planner_;
  std::unique_ptr<worker::Model> model_;
  std::unique_ptr<worker::Stepper> stepper_;
  std::unique_ptr<server::RowStore> rows_;
  std::vector<worker::TableUse> uses_;
  std::vector<worker::Plan> plans_;
  worker::Batch batch_;
  QualityTally quality_;
  Meter meter_;
};

double SumNs(const Stages& stages) {
  double sum = 0;
  for (const auto& [work, samples] : stages.meter().samples())
    for (const Sample& sample : samples) sum += sample.ns;
  return sum;
}

// The same batches on two threads at once and on one alone, turn about.
Expected<double> MeasureSlowdown(const Job& job, const worker::Dataset& set, double seconds) {
  if (std::thread::hardware_concurrency() < 2) return 1.0;
  std::unique_ptr<Stages> alone, pair[2];
  for (std::unique_ptr<Stages>* each : {&alone, &pair[0], &pair[1]}) {
    auto made = Stages::Make(job, set, job.train.batch_rows);
    if (!made) return std::unexpected(made.error());
    *each = std::move(*made);
  }
  Status status[2];
  std::uint64_t number = 0;
  while (SumNs(*alone) < seconds * 1e9) {
    for (int i = 0; i < 4; ++i) TARN_RETURN_IF_ERROR(alone->Step(number + i));
    std::jthread other([&] {
      for (int i = 0; i < 4 && status[1]; ++i) status[1] = pair[1]->Step(number + i);
    });
    for (int i = 0; i < 4 && status[0]; ++i) status[0] = pair[0]->Step(number + i);
    other.join();
    for (const Status& each : status) TARN_RETURN_IF_ERROR(each);
    number += 4;
  }
  const auto median = [](const Stages& stages) {
    std::vector<double> ns;
    for (const Sample& sample : stages.meter().samples().at(Work::kCompute)) ns.push_back(sample.ns);
    std::ranges::nth_element(ns, ns.begin() + std::ptrdiff_t(ns.size() / 2));
    return ns[ns.size() / 2];
  };
  return std::max(1.0, (median(*pair[0]) + median(*pair[1])) / 2 / median(*alone));
}

}  // namespace

Status MeasureStages(const Job& job, double seconds, Costs* costs) {
  auto set = worker::Dataset::Open(job.data, job.data.train);
  if (!set) return std::unexpected(set.error());
  std::map<Work, std::vector<Sample>> samples;
  for (const std::uint32_t batch_rows : kBatchRows) {
    auto stages = Stages::Make(job, **set, batch_rows);
    if (!stages) return std::unexpected(stages.error());
    for (std::uint32_t i = 0; i < kLeast || SumNs(**stages) < seconds * 1e9; ++i)
      TARN_RETURN_IF_ERROR((*stages)->Step(i));
    for (const auto& [work, taken] : (*stages)->meter().samples())
      samples[work].insert(samples[work].end(), taken.begin() + 1, taken.end());  // the first warms up
  }
  for (const auto& [work, taken] : samples) (*costs)[work] = Fit(taken);
  const auto slowdown = MeasureSlowdown(job, **set, seconds);
  if (!slowdown) return std::unexpected(slowdown.error());
  costs->busy_slowdown = *slowdown;
  return {};
}

}  // namespace tarn::scale
