// Trains a job in one process and one thread: the same reader, model, kernels and row store as a fleet, without
// scheduler, protocol or network. A baseline for the speed of a fleet, and a reference for its quality.
//
//   single_process examples/criteo-fm.toml [--set train.batch_rows=1024]...

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "kernels/subnormals.h"
#include "server/store/store.h"
#include "worker/client/plan.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/train/algorithms_file.h"
#include "worker/train/batch_planner.h"
#include "worker/train/batch_reader.h"
#include "worker/train/stepper.h"

namespace {

using namespace tarn;
using namespace tarn::worker;
using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

struct StageSeconds {
  double read = 0, plan = 0, gather = 0, compute = 0, apply = 0;
};

class SingleProcess {
 public:
  static Expected<std::unique_ptr<SingleProcess>> Make(const Job& job);
  Expected<Quality> TrainEpoch(StageSeconds* stages);
  Expected<Quality> Evaluate(const Dataset& set);
  const Dataset* valid() const { return valid_.get(); }
  const Dataset* test() const { return test_.get(); }
  std::uint64_t train_rows() const { return train_->rows(); }

 private:
  explicit SingleProcess(const Job& job) : job_(job), rows_(StoreOptions(job)) {}
  static server::StoreOptions StoreOptions(const Job& job) {
    server::StoreOptions options{job.job.seed, job.fleet.partition_bits, {}};
    for (std::uint32_t p = 0; p < (1u << job.fleet.partition_bits); ++p) options.owned.push_back(PartitionId(p));
    return options;
  }
  Status Step(const Dataset& set, std::uint64_t first, std::uint64_t rows, bool train, StageSeconds* stages);

  Job job_;
  std::optional<BatchPlanner> planner_;
  server::Store rows_;
  std::unique_ptr<Dataset> train_, valid_, test_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Stepper> stepper_;
  std::vector<TableUse> uses_;
  std::vector<Plan> plans_;
  std::vector<std::vector<Section>> sections_;
  Batch batch_;
  QualityTally quality_;
  Clock clock_;
  std::uint32_t epoch_ = 0;
};

Expected<std::unique_ptr<SingleProcess>> SingleProcess::Make(const Job& job) {
  std::unique_ptr<SingleProcess> self(new SingleProcess(job));
  const auto open = [&](const std::string& name, std::unique_ptr<Dataset>* out) -> Status {
    if (name.empty()) return {};
    auto set = Dataset::Open(job.data, name);
    if (!set) return std::unexpected(set.error());
    *out = std::move(*set);
    return {};
  };
  TARN_RETURN_IF_ERROR(open(job.data.train, &self->train_));
  TARN_RETURN_IF_ERROR(open(job.data.valid, &self->valid_));
  TARN_RETURN_IF_ERROR(open(job.data.test, &self->test_));
  auto model = MakeModel(job, {self->train_->fields(), self->train_->dense_columns(), job.data.classes});
  if (!model) return std::unexpected(model.error());
  self->model_ = std::move(*model);
  self->uses_ = self->model_->tables();
  for (std::uint32_t t = 0; t < self->uses_.size(); ++t) {
    TableSpec& spec = self->uses_[t].spec;
    spec.id = TableId(t);
    TARN_RETURN_IF_ERROR(self->rows_.AddTable(spec));
    const bool all = self->uses_[t].rows == RowsNeeded::kAll;
    self->plans_.push_back(all ? PlanOfAll(spec, job.job.seed, job.fleet.partition_bits) : Plan{});
  }
  self->planner_.emplace(job, self->uses_, BatchPlannerOptions{.partition_bits = job.fleet.partition_bits});
  self->sections_.resize(self->uses_.size());
  const StepperOptions options{.algorithms_file =
                                   AlgorithmsFile(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"), "")};
  auto stepper = Stepper::Make(job, self->model_.get(), options);
  if (!stepper) return std::unexpected(stepper.error());
  self->stepper_ = std::move(*stepper);
  return self;
}

Status SingleProcess::Step(const Dataset& set, std::uint64_t first, std::uint64_t rows, bool train,
                           StageSeconds* stages) {
  auto begin = SteadyClock::now();
  const auto lap = [&](double* to) {
    *to += SecondsSince(begin);
    begin = SteadyClock::now();
  };
  const LeasePurpose purpose = train ? LeasePurpose::kTrain : LeasePurpose::kTest;
  TARN_RETURN_IF_ERROR(ReadRows(set, job_, purpose, epoch_, first, rows, &batch_));
  lap(&stages->read);
  TARN_RETURN_IF_ERROR(planner_->Make(&batch_.keys, &plans_));
  for (std::size_t t = 0; t < uses_.size(); ++t) {
    sections_[t].clear();
    for (const PlanRun& run : plans_[t].runs) sections_[t].push_back({run.partition, run.count, Sequence(0)});
  }
  lap(&stages->plan);
  std::vector<const Plan*> plans;
  std::vector<Buffer> values;
  for (std::size_t t = 0; t < uses_.size(); ++t) {
    plans.push_back(&plans_[t]);
    values.push_back(Buffer::Allocate(plans_[t].keys.size() * plans_[t].dim * sizeof(float)));
    rows_.Gather(uses_[t].spec.id, sections_[t], plans_[t].keys, ValueCodec::kFp32, values[t].data());
  }
  lap(&stages->gather);
  const auto gradients = stepper_->Run(batch_, plans, values, train, &quality_);
  if (!gradients) return std::unexpected(gradients.error());
  lap(&stages->compute);
  if (!train) return {};
  for (std::size_t t = 0; t < gradients->size(); ++t)
    rows_.Apply(uses_[t].spec.id, sections_[t], plans_[t].keys, ValueCodec::kFp32, (*gradients)[t].data(), clock_);
  clock_ = clock_ + 1;
  lap(&stages->apply);
  return {};
}

Expected<Quality> SingleProcess::TrainEpoch(StageSeconds* stages) {
  for (std::uint64_t first = 0; first < train_->rows(); first += job_.train.batch_rows)
    TARN_RETURN_IF_ERROR(
        Step(*train_, first, std::min<std::uint64_t>(job_.train.batch_rows, train_->rows() - first), true, stages));
  ++epoch_;
  return quality_.Take();
}

Expected<Quality> SingleProcess::Evaluate(const Dataset& set) {
  constexpr std::uint64_t kRows = 2048;
  StageSeconds ignored;
  for (std::uint64_t first = 0; first < set.rows(); first += kRows)
    TARN_RETURN_IF_ERROR(Step(set, first, std::min(kRows, set.rows() - first), false, &ignored));
  return quality_.Take();
}

// The AUC as text; "null" for idx data, which has several classes.
std::string AucText(const Job& job, const Quality& quality) {
  return job.data.format == DataFormat::kIdx ? "null" : fmt::format("{:.5f}", quality.Auc());
}

void PrintScore(const char* set, const Job& job, const Quality& q) {
  fmt::print("  {}: log-loss {:.5f} AUC {} accuracy {:.4f}\n", set, q.LogLoss(), AucText(job, q), q.Accuracy());
}

Status Run(const Job& job) {
  auto made = SingleProcess::Make(job);
  if (!made) return std::unexpected(made.error());
  SingleProcess& run = **made;
  double best = 0;
  for (std::uint32_t epoch = 0; epoch < job.train.epochs; ++epoch) {
    StageSeconds stages;
    const auto begin = SteadyClock::now();
    const auto train = run.TrainEpoch(&stages);
    if (!train) return std::unexpected(train.error());
    const double seconds = SecondsSince(begin);
    fmt::print(
        "epoch {}: {:.0f} samples/s ({:.2f} s: read {:.2f} plan {:.2f} gather {:.2f} compute {:.2f} apply {:.2f}), "
        "train log-loss {:.5f} AUC {}\n",
        epoch + 1, double(run.train_rows()) / seconds, seconds, stages.read, stages.plan, stages.gather, stages.compute,
        stages.apply, train->LogLoss(), AucText(job, *train));
    bool improved = true;
    if (run.valid() != nullptr) {
      const auto valid = run.Evaluate(*run.valid());
      if (!valid) return std::unexpected(valid.error());
      improved = epoch == 0 || valid->LogLoss() < best;
      if (improved) best = valid->LogLoss();
      PrintScore("valid", job, *valid);
    }
    if (improved && run.test() != nullptr) {
      const auto test = run.Evaluate(*run.test());
      if (!test) return std::unexpected(test.error());
      PrintScore("test", job, *test);
    }
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  std::vector<std::string> overrides;
  CLI::App app{"Trains a job in one process and one thread, as a baseline for fleets."};
  app.add_option("job", path, "job file")->required();
  app.add_option("--set", overrides, "section.key=value");
  CLI11_PARSE(app, argc, argv);
  const auto job = LoadJob(path, overrides);
  if (!job) {
    fmt::print(stderr, "single_process: {}\n", job.error().message);
    return 2;
  }
  const kernels::SubnormalsAreZero fast;
  if (const Status status = Run(*job); !status) {
    fmt::print(stderr, "single_process: {}\n", ToString(status.error()));
    return 1;
  }
  return 0;
}
