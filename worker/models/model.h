// What a model is to the training loop: the tables that it needs, and a step from rows and a batch to predictions and
// gradients. A model holds no parameters: they live in the tables. A new model is one file plus a line in MakeModel.
//
//   auto model = MakeModel(job, {.fields = 39});
//   for (const TableUse& use : (*model)->tables()) ...            // create, plan, pull
//   (*model)->Step({&batch, views, scale, /*train=*/true}, &quality);  // gradients are in the views
//
// Not thread-safe: a model keeps working memory between steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/job.h"
#include "core/quality.h"
#include "core/table_spec.h"
#include "worker/batch.h"

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

// One table as one batch sees it. Sparse: `unique` rows without duplicates, index[o] says which is the row of
// occurrence o (the bias is the last occurrence). Dense: all rows in order, index is null.
struct TableView {
  const float* rows = nullptr;
  float* gradients = nullptr;  // like rows, zeroed by the caller; null when not training
  const std::uint32_t* index = nullptr;
  std::size_t unique = 0;
};

struct StepInput {
  const Batch* batch = nullptr;
  std::span<const TableView> views;  // in the order of tables()
  float scale = 1;                   // of the summed gradient: 1 / nominal batch rows
  bool train = true;
};

class Model {
 public:
  virtual ~Model() = default;
  const std::vector<TableUse>& tables() const { return tables_; }
  // Adds the batch's predictions (made before any update) to `quality` and, when training, gradients to the views.
  virtual void Step(const StepInput& input, QualityTally* quality) = 0;

 protected:
  Model() = default;
  explicit Model(std::vector<TableUse> tables) : tables_(std::move(tables)) {}
  std::vector<TableUse> tables_;
};

// What the data looks like to a model.
struct ModelShape {
  std::uint32_t fields = 0;         // keys a row, 0 if it varies
  std::uint32_t dense_columns = 0;  // floats a row
  std::uint32_t classes = 2;
};

// The job's model. Errors name what does not fit: DLRM without dense columns, a deep model over rows of varying
// length, a layer wider than a row may be.
Expected<std::unique_ptr<Model>> MakeModel(const Job& job, const ModelShape& shape);

}  // namespace tarn::worker
