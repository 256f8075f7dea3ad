// One factory per built-in model, for MakeModel (model.h).
#pragma once

#include <memory>
#include <string>

#include "worker/models/model.h"

namespace tarn::worker {

// The text of a warning that names the inputs that a model ignores in data of this shape; empty: it uses all.
std::string UnusedInputs(ModelKind kind, const ModelShape& shape);

Expected<std::unique_ptr<Model>> MakeLogisticRegression(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeFm(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeWideDeep(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeDeepFm(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeDlrm(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeDcnV2(const Job& job, const ModelShape& shape);
Expected<std::unique_ptr<Model>> MakeMlp(const Job& job, const ModelShape& shape);

}  // namespace tarn::worker
