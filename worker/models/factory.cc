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

}  // namespace tarn::worker
