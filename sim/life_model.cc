#include "sim/life_model.h"

#include <optional>

#include "core/hash.h"

namespace tarn::sim {
namespace {

constexpr std::uint64_t kAdmission = 0x61646d6974;  // same as the server's: rule R2 fixes the draw

}  // namespace

double LifeModel::ValueAt(Key key, std::span<const ClockPart> parts, Clock minimum) const {
  std::optional<server::RowLife> row;
  std::uint32_t seen = 0;
  double value = 0;
  for (const ClockPart& part : parts) {
    if (part.clock >= minimum) break;
    const auto now = static_cast<std::uint32_t>(part.clock.value);
    if (row && IsOver(*row, part.clock)) row.reset();
    if (row) {
      row = rules_.Touched(*row, now);
      value += part.value;
      continue;
    }
    const bool counted = seen + 1 >= spec_.admit_count;
    if (!counted) ++seen;
    if (!counted || !IsDrawn(key, part.clock)) continue;
    seen = 0;
    row = rules_.Born(now);
    value = part.value;
  }
  return row && !IsOver(*row, minimum) ? value : 0;
}

// Checks only the latest boundary: an earlier one is not stricter, and a row that expired then is still expired.
bool LifeModel::IsOver(server::RowLife life, Clock now) const {
  const auto boundary = rules_.BoundaryBefore(static_cast<std::uint32_t>(now.value));
  return rules_.expires() && boundary > life.last && rules_.Standing(life) < rules_.LeastStanding(boundary);
}

bool LifeModel::IsDrawn(Key key, Clock clock) const {
  return spec_.admit_probability >= 1 ||
         UnitDouble(HashCombine(HashCombine(salt_ ^ kAdmission, key), clock.value)) < double{spec_.admit_probability};
}

}  // namespace tarn::sim
