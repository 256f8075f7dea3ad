// All fields of a LifeSpec with their keys in the job file and their ranges. Used by the reader and the writer of job
// files, by the comparison of two specs, and by Validate.
#pragma once

#include <cstdint>

#include "core/limits.h"
#include "core/table/optimizer_fields.h"
#include "core/table/table_spec.h"

namespace tarn {

// Calls visitor.Boolean(key, bool&), visitor.Number(key, float& or double&, Range) and visitor.Integer(key, uint32& or
// uint64&, low, high) for each field, in the order of the documentation. Spec is LifeSpec or const LifeSpec.
template <typename Visitor, typename Spec>
void VisitLife(Visitor& visitor, Spec& spec) {
  constexpr std::uint64_t kRowsMax = std::uint64_t{1} << 48;
  visitor.Boolean("life", spec.on);
  visitor.Integer("admit_count", spec.admit_count, 1, limits::kAdmitCountMax);
  visitor.Number("admit_probability", spec.admit_probability, Range{0, 1, true});
  visitor.Integer("expire_clocks", spec.expire_clocks, 0, limits::kLifeClocksMax);
  visitor.Number("expire_seconds", spec.expire_seconds, Range{0, limits::kLifeClocksMax});
  visitor.Number("min_score", spec.min_score, Range{0, 1});
  visitor.Number("score_decay", spec.score_decay, Range{0, 1, true});
  visitor.Integer("rows_max", spec.rows_max, 0, kRowsMax);
  visitor.Integer("sweep_clocks", spec.sweep_clocks, 1, limits::kLifeClocksMax);
}

}  // namespace tarn
