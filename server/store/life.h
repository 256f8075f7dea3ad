// The life of a row as pure arithmetic (docs/protocol.md, "The life of a row", rules R3 to R5): how a push changes it,
// and when it ends. The table chooses the unit of time: clocks or seconds. The bits are the same on every x86-64,
// because no function of the C library is used. Plain values, any thread.
//
// Rows are compared by their *standing*: the time of the last push, or, with a score that decays, the time at which the
// score will be (or was) 1. Rows with a lower standing expire first. The standing of a row changes only when it is
// pushed (forward decay: Cormode, Shkapenyuk, Srivastava, Xu, ICDE 2009).
#pragma once

#include <cstdint>

#include "core/table/table_spec.h"

namespace tarn::server {

// The life of one row, stored at the end of its record (core/row_layout.h).
struct RowLife {
  std::uint32_t last = 0;  // time of the last push, at most 2^32 - 1
  float score = 0;         // at that time
};

class LifeRules {
 public:
  explicit LifeRules(const LifeSpec& spec);

  // The life after a push at `now`: Born for the first push of a row, Touched for later ones.
  RowLife Born(std::uint32_t now) const { return {now, 1.0f}; }
  RowLife Touched(RowLife life, std::uint32_t now) const;

  std::uint32_t Standing(RowLife life) const;

  // Whether rows can expire at all.
  bool expires() const { return lifetime_ != 0 || rows_max_ != 0; }
  bool in_seconds() const { return in_seconds_; }
  // Rows expire at times that are multiples of this.
  std::uint32_t period() const { return period_; }
  // Standings are counted in classes of this many units of time.
  std::uint32_t step() const { return step_; }
  // The latest boundary at or before a time.
  std::uint32_t BoundaryBefore(std::uint32_t now) const { return now - now % period_; }
  // Rows with a standing below this expire at `boundary`. A multiple of step(); 0: no row expires by age or score.
  std::uint32_t LeastStanding(std::uint32_t boundary) const;
  // Bound of the rows of one of 2^partition_bits partitions; 0: unbounded.
  std::uint64_t RowsMax(std::uint32_t partition_bits) const {
    return rows_max_ == 0 ? 0 : ((rows_max_ - 1) >> partition_bits) + 1;
  }

 private:
  double decay_;
  double half_life_;            // time in which a score halves; 0: scores do not decay
  std::uint32_t lifetime_ = 0;  // a row expires when its standing is more than this below a boundary; 0: never
  std::uint64_t rows_max_;
  std::uint32_t period_ = 1, step_ = 1;
  bool in_seconds_;
};

}  // namespace tarn::server
