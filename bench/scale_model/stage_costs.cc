#include "bench/scale_model/stage_costs.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "bench/scale_model/meter.h"
#include "server/store/store.h"
#include "worker/client/plan.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/train/batch_planner.h"
#include "worker/train/batch_reader.h"
#include "worker/train/stepper.h"

namespace tarn::scale {
namespace {

constexpr std::uint32_t kBatchRows[] = {256, 2048, 16384};
constexpr std::uint32_t kBatchesMin = 5;  // per size
constexpr int kRounds = 4;                // alternately with and without another busy core

// The work of one worker on batches of one size, with its own store.
class Stages {
 public:
  static Expected<std::unique_ptr<Stages>> Make(const Job& job, const worker::Dataset& set, std::uint32_t batch_rows) {
    std::unique_ptr<Stages> made(new Stages(job, set, batch_rows));
    auto model = worker::MakeModel(job, {set.fields(), set.dense_columns(), job.data.classes});
    if (!model) return std::unexpected(model.error());
    made->model_ = std::move(*model);
    made->uses_ = made->model_->tables();
    server::StoreOptions options{job.job.seed, job.fleet.partition_bits, {}};
    for (std::uint32_t p = 0; p < (1u << job.fleet.partition_bits); ++p) options.owned.push_back(PartitionId(p));
    made->rows_ = std::make_unique<server::Store>(std::move(options));
    for (std::uint32_t t = 0; t < made->uses_.size(); ++t) {
      made->uses_[t].spec.id = TableId(t);
      const TableSpec& spec = made->uses_[t].spec;
      TARN_RETURN_IF_ERROR(made->rows_->AddTable(spec));
      const bool all = made->uses_[t].rows == worker::RowsNeeded::kAll;
      made->plans_.push_back(all ? worker::PlanOfAll(spec, job.job.seed, job.fleet.partition_bits) : worker::Plan{});
    }
    made->planner_.emplace(job, made->uses_, worker::BatchPlannerOptions{.partition_bits = job.fleet.partition_bits});
    made->job_.train.batch_rows = batch_rows;
    auto stepper = worker::Stepper::Make(made->job_, made->model_.get());
    if (!stepper) return std::unexpected(stepper.error());
    made->stepper_ = std::move(*stepper);
    return made;
  }

  // Processes one batch and adds its times. `number`: index of the batch in the set.
  Status Step(std::uint64_t number) {
    const std::uint64_t batches = std::max<std::uint64_t>(1, set_.rows() / batch_rows_);
    const std::uint64_t rows = std::min<std::uint64_t>(batch_rows_, set_.rows());
    meter_.Begin();
    TARN_RETURN_IF_ERROR(worker::ReadRows(set_, job_, LeasePurpose::kTrain, 0, number % batches * rows, rows, &batch_));
    meter_.Add(Work::kRead, {{1, double(rows)}, meter_.Lap()});
    TARN_RETURN_IF_ERROR(planner_->Make(&batch_.keys, &plans_));
    meter_.Add(Work::kPlan, {{1, double(rows)}, meter_.Lap()});
    std::vector<const worker::Plan*> plans;
    std::vector<Buffer> values;
    plans.reserve(uses_.size());
    for (std::size_t t = 0; t < uses_.size(); ++t) {
      const worker::Plan& plan = plans_[t];
      std::vector<Section> sections;
      sections.reserve(plan.runs.size());
      for (const worker::PlanRun& run : plan.runs) sections.push_back({run.partition, run.count, Sequence(0)});
      plans.push_back(&plan);
      values.push_back(Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float)));
      rows_->Gather(uses_[t].spec.id, sections, plan.keys, ValueCodec::kFp32, values[t].data());
    }
    meter_.Begin();
    const auto gradients = stepper_->Run(batch_, plans, values, true, &quality_);
    meter_.Add(Work::kCompute, {{1, double(rows)}, meter_.Lap()});
    if (!gradients) return std::unexpected(gradients.error());
    return {};
  }

  // Processes one warm-up batch, then batches for `seconds`, at least kBatchesMin. Adds their times to `samples`.
  Status Measure(double seconds, std::map<Work, std::vector<Sample>>* samples) {
    TARN_RETURN_IF_ERROR(Step(next_++));
    Forget();
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0;
         i < kBatchesMin || std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(seconds); ++i)
      TARN_RETURN_IF_ERROR(Step(next_++));
    for (const auto& [work, taken] : meter_.samples())
      (*samples)[work].insert((*samples)[work].end(), taken.begin(), taken.end());
    return {};
  }
  void Forget() { meter_ = Meter(); }

 private:
  Stages(const Job& job, const worker::Dataset& set, std::uint32_t batch_rows)
      : job_(job), set_(set), batch_rows_(batch_rows) {}

  Job job_;
  const worker::Dataset& set_;
  std::uint32_t batch_rows_;
  std::optional<worker::BatchPlanner> planner_;
  std::unique_ptr<worker::Model> model_;
  std::unique_ptr<worker::Stepper> stepper_;
  std::unique_ptr<server::Store> rows_;
  std::vector<worker::TableUse> uses_;
  std::vector<worker::Plan> plans_;
  worker::Batch batch_;
  QualityTally quality_;
  Meter meter_;
  std::uint64_t next_ = 0;
};

}  // namespace

class BusyCore::Impl {
 public:
  explicit Impl(std::unique_ptr<Stages> stages)
      : stages_(std::move(stages)), thread_([this](const std::stop_token& stop) {
          for (std::uint64_t i = 0; !stop.stop_requested() && stages_->Step(i); ++i) stages_->Forget();
        }) {}

 private:
  std::unique_ptr<Stages> stages_;
  std::jthread thread_;
};

BusyCore::BusyCore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BusyCore::~BusyCore() = default;

Expected<std::unique_ptr<BusyCore>> BusyCore::Make(const Job& job, const worker::Dataset& set) {
  auto stages = Stages::Make(job, set, job.train.batch_rows);
  if (!stages) return std::unexpected(stages.error());
  return std::unique_ptr<BusyCore>(new BusyCore(std::make_unique<Impl>(std::move(*stages))));
}

Status MeasureStages(const Job& job, const worker::Dataset& set, double seconds, Costs* costs) {
  std::map<Work, std::vector<Sample>> alone, together;
  std::vector<std::unique_ptr<Stages>> sizes;
  for (const std::uint32_t batch_rows : kBatchRows) {
    auto stages = Stages::Make(job, set, batch_rows);
    if (!stages) return std::unexpected(stages.error());
    sizes.push_back(std::move(*stages));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (auto* samples : {&alone, &together}) {
      std::unique_ptr<BusyCore> busy_core;
      if (samples == &together) {
        auto made = BusyCore::Make(job, set);
        if (!made) return std::unexpected(made.error());
        busy_core = std::move(*made);
      }
      for (auto& stages : sizes) TARN_RETURN_IF_ERROR(stages->Measure(seconds / kRounds, samples));
    }
  }
  for (const auto& [work, taken] : together) (*costs)[work] = Fit(taken);
  const Amount batch{1, double(job.train.batch_rows)};
  costs->busy_slowdown = std::max(1.0, (*costs)[Work::kCompute](batch) / Fit(alone[Work::kCompute])(batch));
  return {};
}

}  // namespace tarn::scale
