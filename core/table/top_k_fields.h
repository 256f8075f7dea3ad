// All fields of a TopKSpec with their keys in the job file and their ranges. Used by the reader and the writer of job
// files, by the comparison of two specs, and by Validate.
#pragma once

#include <cstdint>

#include "core/table/optimizer_fields.h"
#include "core/table/table_spec.h"

namespace tarn {

// Calls visitor.Number(key, float&, Range) and visitor.Bytes(key, uint64&) for each field, in the order of the
// documentation. Spec is TopKSpec or const TopKSpec.
template <typename Visitor, typename Spec>
void VisitTopK(Visitor& visitor, Spec& spec) {
  visitor.Number("push_topk", spec.share, Range{0, 1, true});
  visitor.Bytes("residual_memory", spec.residual_bytes);
}

}  // namespace tarn
