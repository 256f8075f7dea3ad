#include "worker/models/factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/limits.h"
#include "core/log.h"
#include "core/names.h"
#include "core/nearest.h"
#include "kernels/loss.h"

namespace tarn::worker {
namespace {

Status CheckLearnable(ModelKind kind, const ModelShape& shape) {
  if (kind == ModelKind::kMlp) return {};
  if (shape.classes > 2)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("model.kind = \"{}\" supports two classes, but data.classes = {}: expected model.kind = "
                            "\"mlp\" over dense columns, or data.classes = 2",
                            Name(kind), shape.classes));
  if (shape.fields == 0 && shape.dense_columns != 0)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("model.kind = \"{}\" needs keys, but the rows of this data have only {} dense "
                            "columns: expected model.kind = \"mlp\", or data with categories",
                            Name(kind), shape.dense_columns));
  return {};
}

Expected<std::unique_ptr<Model>> MakeKind(const Job& job, const ModelShape& shape) {
  switch (job.model.kind) {
    case ModelKind::kLogisticRegression: return MakeLogisticRegression(job, shape);
    case ModelKind::kFm: return MakeFm(job, shape);
    case ModelKind::kWideDeep: return MakeWideDeep(job, shape);
    case ModelKind::kDeepFm: return MakeDeepFm(job, shape);
    case ModelKind::kDlrm: return MakeDlrm(job, shape);
    case ModelKind::kDcnV2: return MakeDcnV2(job, shape);
    case ModelKind::kMlp: return MakeMlp(job, shape);
  }
  return Fail(ErrorCode::kUnsupported, "model.kind: unknown to this build");
}

// A misspelt [tables.NAME] would silently have no effect.
Status CheckTableNames(const Job& job, const std::vector<TableUse>& tables) {
  std::vector<std::string_view> names;
  names.reserve(tables.size());
  for (const TableUse& use : tables) names.push_back(use.spec.name);
  for (const auto& [name, own] : job.tables) {
    if (std::ranges::find(names, name) == names.end())
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("[tables.{}]: model.kind = \"{}\" has no such table: expected one of {}; the nearest is {}", name,
                      Name(job.model.kind), fmt::join(names, ", "), Quoted(NearestWord(name, names))));
  }
  return {};
}

}  // namespace

std::string UnusedInputs(ModelKind kind, const ModelShape& shape) {
  if (kind == ModelKind::kMlp)
    return shape.fields == 0 ? "" : fmt::format("model.kind = \"mlp\" ignores the {} keys of each row", shape.fields);
  if (kind == ModelKind::kDlrm || kind == ModelKind::kDcnV2 || shape.dense_columns == 0) return "";
  return fmt::format("model.kind = \"{}\" ignores the {} dense columns (data.dense_integers)", Name(kind),
                     shape.dense_columns);
}

Expected<std::unique_ptr<Model>> MakeModel(const Job& job, const ModelShape& shape) {
  TARN_RETURN_IF_ERROR(CheckLearnable(job.model.kind, shape));
  std::uint64_t rows = DataRowsPerPushMax(job);
  for (const std::uint64_t of_rank : BatchRowsByRank(job)) rows = std::max(rows, of_rank);
  TARN_RETURN_IF_ERROR(CheckBatchKeys(rows, rows * shape.fields));
  if (const std::string unused = UnusedInputs(job.model.kind, shape); !unused.empty()) LogWarning("{}", unused);
  auto model = MakeKind(job, shape);
  if (model) TARN_RETURN_IF_ERROR(CheckTableNames(job, (*model)->tables()));
  return model;
}

Status CheckBatchKeys(std::uint64_t rows, std::uint64_t keys) {
  constexpr std::uint64_t kKeysMax = limits::kPlanKeysMax - 1;  // leaves room for the bias
  if (keys <= kKeysMax) return {};
  return Fail(ErrorCode::kTooLarge,
              fmt::format("train.batch_rows: a batch of {} rows has {} keys (one for each of data.integer_columns and "
                          "data.categorical_columns of a row, or each entry of its line): expected at most {}",
                          rows, keys, kKeysMax));
}

void Tally(const Predictions& predictions, std::span<const float> labels, QualityTally* quality) {
  const auto& [logits, loss, losses, correct] = predictions;
  const std::size_t n = labels.size();
  if (logits == nullptr) {
    for (std::size_t r = 0; r < n; ++r) quality->AddClass(losses[r], correct[r] != 0);
    return;
  }
  for (std::size_t r = 0; r < n; ++r) quality->AddBinary(logits[r], labels[r] > 0.5f);
  quality->AddLoss(loss ? *loss : kernels::LogisticLoss(n, logits, labels.data(), 1.0f, nullptr));
}

}  // namespace tarn::worker
