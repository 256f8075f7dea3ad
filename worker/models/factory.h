// One maker per built-in model; MakeModel (model.h) chooses.
#pragma once

#include <memory>
#include <string>

#include "worker/models/model.h"

namespace tarn::worker {

// What of such data a model does not look at, for a warning; empty: it uses all.
std::string UnusedInputs(ModelKind kind, const ModelShape& shape);

Expected<std::unique_ptr<Model>> MakeLogisticRegression(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeFm(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeWideDeep(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeDeepFm(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeDlrm(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeDcnV2(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeMlp(const Job& job, const ModelShape& shape);

}  // namespace tarn::worker
