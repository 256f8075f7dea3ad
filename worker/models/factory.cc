#include "worker/models/factory.h"

namespace tarn::worker {

Expected<std::unique_ptr<Model>> MakeModel(const Job& job, const ModelShape& shape) {
  switch (job.model.kind) {
    case ModelKind::kLogisticRegression: return MakeLogisticRegression(job, shape);
    case ModelKind::kFm: return MakeFm(job, shape);
    case ModelKind::kWideDeep: return MakeWideDeep(job, shape);
    case ModelKind::kDeepFm: return MakeDeepFm(job, shape);
    case ModelKind::kDlrm: return MakeDlrm(job, shape);
    case ModelKind::kDcnV2: return MakeDcnV2(job, shape);
    case ModelKind::kMlp: return MakeMlp(job, shape);
  }
  return Fail(ErrorCode::kUnsupported, "model.kind: not one that this build knows");
}

void Tally(const Predictions& predictions, std::span<const float> labels, QualityTally* quality) {
  for (std::size_t r = 0; r < labels.size(); ++r)
    if (predictions.logits != nullptr)
      quality->AddBinary(predictions.logits[r], labels[r] > 0.5f);
    else
      quality->AddClass(predictions.losses[r], predictions.correct[r] != 0);
}

}  // namespace tarn::worker
