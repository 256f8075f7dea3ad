// Steps of every model over random rows, for the tests of the stepper.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "core/position.h"
#include "worker/train/stepper.h"

namespace tarn::worker {

struct StepShape {
  ModelKind kind;
  std::uint32_t fields, dense_columns, classes;
  bool weighted = false;
  std::uint32_t cross_rank = 0;
};

inline const StepShape kStepShapes[] = {{ModelKind::kLogisticRegression, 3, 0, 2},
                                        {ModelKind::kLogisticRegression, 0, 0, 2, true},
                                        {ModelKind::kFm, 3, 0, 2},
                                        {ModelKind::kFm, 0, 0, 2, true},
                                        {ModelKind::kWideDeep, 3, 0, 2},
                                        {ModelKind::kDeepFm, 5, 0, 2},
                                        {ModelKind::kDlrm, 3, 4, 2},
                                        {ModelKind::kDcnV2, 3, 0, 2},
                                        {ModelKind::kDcnV2, 2, 4, 2, false, 3},
                                        {ModelKind::kMlp, 0, 6, 4}};

inline std::string NameOf(const StepShape& shape) {
  return std::string(Name(shape.kind)) + (shape.weighted ? "_weighted" : "") +
         (shape.cross_rank != 0 ? "_low_rank" : "");
}

struct StepResult {
  std::vector<std::vector<float>> gradients;  // by table; none: the batch was skipped
  Quality quality;
  std::size_t activation_bytes = 0;
};

// A model with a stepper for these settings of [train], and batches for it. Cases with the same shape, seed and rows
// have the same batch and parameters, whatever the settings.
class StepCase {
 public:
  StepCase(const StepShape& shape, TrainSection train, std::size_t batch_rows) : shape_(shape) {
    job_.train = std::move(train);
    job_.train.batch_rows = static_cast<std::uint32_t>(batch_rows);
    job_.model.kind = shape.kind;
    job_.model.embedding_dim = 4;
    job_.model.hidden = {16, 5};
    job_.model.bottom = {6};
    job_.model.cross_rank = shape.cross_rank;
    auto model = MakeModel(job_, {shape.fields, shape.dense_columns, shape.classes});
    TARN_CHECK(model.has_value(), "the shapes fit their models");
    model_ = std::move(*model);
  }

  // Must be called before MakeStepper.
  void SetLocal(const LocalSection& local) { job_.local = local; }

  // Makes the stepper. Fails if its GPU does not exist.
  Status MakeStepper(const StepperOptions& options = {}) {
    auto stepper = Stepper::Make(job_, model_.get(), options);
    if (!stepper) return std::unexpected(stepper.error());
    stepper_ = std::move(*stepper);
    return {};
  }

  // What the model computes on; null: the CPU.
  kernels::Stream* stream() const { return stepper_->stream(); }

  // From now on rows of sparse tables are passed by the address that `place` returns, which stays valid.
  void PlaceRows(std::function<const float*(const Buffer& rows)> place) { place_ = std::move(place); }

  // From now on plans of sparse tables are like a GPU's: their index is only at the address that `place` returns.
  void PlaceIndexes(std::function<const std::uint32_t*(const std::vector<std::uint32_t>& index)> place) {
    place_index_ = std::move(place);
  }

  Stepper& stepper() { return *stepper_; }

  // A batch and its rows.
  struct Prepared {
    Batch batch;
    std::vector<Plan> plans;
    std::vector<const Plan*> pointers;
    std::vector<Buffer> values;
    std::vector<PlacedPlan> on_gpu;
    std::vector<const float*> placed;
    QualityTally tally;
  };

  // Makes a batch of random rows, with parameters within +-reach.
  std::unique_ptr<Prepared> Prepare(std::size_t rows, std::uint64_t seed, double reach = 0.5) {
    SplitMix random(seed);
    auto step = std::make_unique<Prepared>();
    MakeBatch(rows, random, &step->batch);
    step->plans.resize(model_->tables().size());
    step->placed.resize(step->plans.size());
    step->on_gpu.resize(step->plans.size());
    for (std::size_t t = 0; t < step->plans.size(); ++t) {
      Plan& plan = step->plans[t];
      MakePlan(t, step->batch, &plan);
      step->pointers.push_back(&plan);
      Buffer& values = step->values.emplace_back(Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float)));
      for (float& v : values.as_mutable<float>()) v = float((random.Unit() * 2 - 1) * reach);
      if (model_->tables()[t].rows == RowsNeeded::kAll) continue;
      if (place_index_ != nullptr) {
        step->on_gpu[t] = {.occurrences = plan.index.size(), .index = place_index_(plan.index)};
        plan.index.clear();
        plan.placed = &step->on_gpu[t];
      }
      if (place_ == nullptr) continue;
      step->placed[t] = place_(values);
      values = {};
    }
    return step;
  }

  void Start(Prepared* step, bool train) {
    const Status started =
        stepper_->Start(step->batch, step->pointers, step->values, train, &step->tally, step->placed);
    EXPECT_TRUE(started.has_value()) << started.error().message;
  }

  StepResult Finish(Prepared* step) {
    auto finished = stepper_->Finish();
    EXPECT_TRUE(finished.has_value()) << finished.error().message;
    EXPECT_EQ(finished->counted.rows, step->tally.sums().rows);
    EXPECT_EQ(finished->counted.loss_sum, step->tally.sums().loss_sum);
    return ResultOf(step, finished->gradients);
  }

  StepResult Run(std::size_t rows, std::uint64_t seed, bool train = true, double reach = 0.5) {
    const auto step = Prepare(rows, seed, reach);
    auto gradients = stepper_->Run(step->batch, step->pointers, step->values, train, &step->tally, step->placed);
    EXPECT_TRUE(gradients.has_value()) << gradients.error().message;
    return ResultOf(step.get(), *gradients);
  }

 private:
  static constexpr std::uint32_t kKeys = 40;

  StepResult ResultOf(Prepared* step, const std::vector<Buffer>& gradients) {
    StepResult result{.quality = step->tally.Take(), .activation_bytes = stepper_->activation_bytes()};
    for (const Buffer& buffer : gradients)
      result.gradients.emplace_back(buffer.as<float>().begin(), buffer.as<float>().end());
    return result;
  }

  void MakeBatch(std::size_t rows, SplitMix& random, Batch* batch) {
    batch->Clear();
    batch->rows = rows;
    batch->fields = shape_.fields;
    batch->dense_columns = shape_.dense_columns;
    for (std::size_t r = 0; r < rows; ++r) {
      batch->labels.push_back(float(random.Below(shape_.classes)));
      for (std::uint32_t d = 0; d < shape_.dense_columns; ++d) batch->dense.push_back(float(random.Unit() * 2 - 1));
      const bool has_keys = shape_.kind != ModelKind::kMlp;
      const std::size_t keys = shape_.fields != 0 ? shape_.fields : (has_keys ? random.Below(6) : 0);
      for (std::size_t k = 0; k < keys; ++k) {
        batch->keys.push_back(1 + random.Below(kKeys));
        if (shape_.weighted) batch->weights.push_back(float(random.Unit() + 0.5));
      }
      batch->offsets.push_back(std::uint32_t(batch->keys.size()));
    }
  }

  void MakePlan(std::size_t t, const Batch& batch, Plan* plan) {
    TableUse use = model_->tables()[t];
    use.spec.id = TableId(static_cast<std::uint32_t>(t));
    std::vector<Key> keys = batch.keys;
    if (use.rows == RowsNeeded::kBatchKeysAndBias) keys.push_back(kBiasKey);
    if (use.rows == RowsNeeded::kAll) {
      keys.resize(use.spec.rows);
      for (Key i = 0; i < keys.size(); ++i) keys[i] = i;
    }
    Planner(2).Make(use.spec.id, use.spec.dim, Positioner(use.spec, TableSalt(1, use.spec.name)), keys, plan);
  }

  StepShape shape_;
  Job job_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Stepper> stepper_;
  std::function<const float*(const Buffer& rows)> place_;
  std::function<const std::uint32_t*(const std::vector<std::uint32_t>& index)> place_index_;
};

}  // namespace tarn::worker
