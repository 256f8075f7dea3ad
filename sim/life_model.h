// Computes the value of a key in a table with a life from the pushes of the key alone (docs/protocol.md, rules R1 to
// R6). Valid for aggregated tables that count in clocks. Uses the server's arithmetic of lives, but not its storage of
// rows.
#pragma once

#include <cstdint>
#include <span>

#include "core/table/table_spec.h"
#include "server/store/life.h"

namespace tarn::sim {

// The sum of the pushes of a clock to a key.
struct ClockPart {
  Clock clock;
  double value = 0;
};

class LifeModel {
 public:
  // `salt`: of the table (TableSalt).
  LifeModel(const LifeSpec& spec, std::uint64_t salt) : spec_(spec), rules_(spec), salt_(salt) {}
  // Whether the model applies: the value of a key depends only on the pushes to it.
  static bool Applies(const LifeSpec& spec) { return spec.on && spec.rows_max == 0 && spec.expire_seconds == 0; }
  // The value once the minimum clock is `minimum`. `parts`: in order of clocks, each clock once.
  double ValueAt(Key key, std::span<const ClockPart> parts, Clock minimum) const;

 private:
  bool IsOver(server::RowLife life, Clock now) const;
  bool IsDrawn(Key key, Clock clock) const;

  LifeSpec spec_;
  server::LifeRules rules_;
  std::uint64_t salt_;
};

}  // namespace tarn::sim
