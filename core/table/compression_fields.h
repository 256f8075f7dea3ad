// All fields of a CompressionSpec with their keys in the job file and their ranges. Used by the reader and the writer
// of job files, by the comparison of two specs, and by Validate.
#pragma once

#include <cstdint>

#include "core/table/optimizer_fields.h"
#include "core/table/table_spec.h"

namespace tarn {

// Calls visitor.Number(key, float&, Range), visitor.Integer(key, uint32& or uint64&, low, high) and visitor.Bytes(key,
// uint64&) for each field, in the order of the documentation. Spec is CompressionSpec or const CompressionSpec.
template <typename Visitor, typename Spec>
void VisitCompression(Visitor& visitor, Spec& spec) {
  visitor.Number("push_topk", spec.share, Range{0, 1, true});
  visitor.Number("push_momentum", spec.momentum, kDecay);
  visitor.Integer("push_warmup_clocks", spec.warmup_clocks, 0, std::uint64_t{1} << 40);
  visitor.Integer("push_rank", spec.rank, 1, limits::kPushRankMax);
  visitor.Bytes("residual_memory", spec.residual_bytes);
}

}  // namespace tarn
