#include "worker/models/factory.h"

#include "kernels/loss.h"

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
