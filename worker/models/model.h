// The interface between models and the training loop: the tables that a model needs, and a step from rows and a batch
// to predictions and gradients. A model has no parameters; they are in the tables. README.md describes how to add a
// model.
//
//   auto model = MakeModel(job, {.fields = 39});
//   for (const TableUse& use : (*model)->tables()) ...            // create, plan, pull
//   Compute compute;                                              // or of a GPU's stream
//   compute.memory().Reset();
//   Predictions made = (*model)->Step(compute, {BatchView::Of(batch), views, scale, /*train=*/true});
//   Tally(made, batch.labels, &quality);                          // gradients are in the views
//
// Not thread-safe: a model stores its arrays between the passes of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/quality.h"
#include "core/table/table_spec.h"
#include "worker/models/compute.h"
#include "worker/models/views.h"

namespace tarn::worker {

// Which rows of a table a batch needs.
enum class RowsNeeded : std::uint8_t {
  kBatchKeys,         // sparse: the rows of batch.keys
  kBatchKeysAndBias,  // sparse: these and, last, the row of kBiasKey
  kAll,               // dense: every row, in order
};

// The key of the constant feature; no reader makes it.
inline constexpr Key kBiasKey = 0;

struct TableUse {
  TableSpec spec;  // id is not set
  RowsNeeded rows = RowsNeeded::kBatchKeys;
};

struct StepInput {
  BatchView batch;
  std::span<const TableView> views;  // in the order of tables()
  float scale = 1;                   // of the summed gradient: 1 / train.batch_rows, times the loss scale
  bool train = true;
};

// A step's predictions for its rows, before any update, in memory of the compute device; valid until its reset.
struct Predictions {
  // Of a model with one logit per row: the logits, and the sum of the logistic losses if the step computes it
  // (Compute::LogisticLoss).
  const float* logits = nullptr;
  std::optional<double> loss;
  // Of a model with a logit per class: each row's cross-entropy, and 1 if its class has the largest logit, else 0.
  const double* losses = nullptr;
  const std::uint32_t* correct = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;
  const std::vector<TableUse>& tables() const { return tables_; }
  // Predicts and, when training, adds gradients to those of the views. Its operations and their arguments depend only
  // on `input`, not on earlier batches, because a step on a GPU is recorded and repeated.
  virtual Predictions Step(Compute& compute, const StepInput& input) = 0;

 protected:
  Model() = default;
  explicit Model(std::vector<TableUse> tables) : tables_(std::move(tables)) {}
  std::vector<TableUse> tables_;
};

// Adds predictions in this process's memory, one for each label, to `quality`. Computes the loss if the predictions
// have none.
void Tally(const Predictions& predictions, std::span<const float> labels, QualityTally* quality);

// The shape of the data.
struct ModelShape {
  std::uint32_t fields = 0;         // keys per row; 0: it varies
  std::uint32_t dense_columns = 0;  // floats per row
  std::uint32_t classes = 2;
};

// The job's model. Errors name the mismatch and the keys to change: a model of two classes for more of them, or over
// data without keys, DLRM without dense columns, a deep model over rows of varying length, a layer wider than a row may
// be, batches of too many keys. Unused inputs are a warning in the log.
Expected<std::unique_ptr<Model>> MakeModel(const Job& job, const ModelShape& shape);

// Checks the number of keys of a batch with `rows` rows: with the bias at most limits::kPlanKeysMax, else kTooLarge,
// whose message names the keys of the job to reduce. If rows have varying numbers of keys, call it for each batch.
Status CheckBatchKeys(std::uint64_t rows, std::uint64_t keys);

}  // namespace tarn::worker
