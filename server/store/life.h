// The life of a row as pure arithmetic (docs/protocol.md, "The life of a row", rules R1 to R5): what a push does to it,
// and when it is over. Time is in clocks, or in seconds where the table says so. The same bits on every x86-64: no
// function of the C library takes part. Plain values, any thread.
//
// Rows are compared by their *standing*: the time of the last push, or, with a score that decays, the time at which the
// score will be (or was) 1. Both only ever say "the lower, the sooner it goes", and neither changes while nobody pushes
// (forward decay: Cormode, Shkapenyuk, Srivastava, Xu, ICDE 2009).
#pragma once

#include <cstdint>

#include "core/table/table_spec.h"

namespace tarn::server {

// Of a row of a table with a life, as its record ends (core/row_layout.h).
struct RowLife {
  std::uint32_t last = 0;  // time of the last push, at most 2^32 - 1
  float score = 0;         // at that time
};

class LifeRules {
 public:
  explicit LifeRules(const LifeSpec& spec);

  // A push at `now`: the first of a row that is born, or one more.
  RowLife Born(std::uint32_t now) const { return {now, 1.0f}; }
  RowLife Touched(RowLife life, std::uint32_t now) const;

  std::uint32_t Standing(RowLife life) const;

  // Whether rows can expire at all.
  bool expires() const { return lifetime_ != 0 || rows_max_ != 0; }
  bool in_seconds() const { return in_seconds_; }
  // Rows expire at multiples of this.
  std::uint32_t period() const { return period_; }
  // Standings are counted in classes of this many units of time.
  std::uint32_t step() const { return step_; }
  // The latest boundary at or before a time.
  std::uint32_t BoundaryBefore(std::uint32_t now) const { return now - now % period_; }
  // At a boundary: rows with a lower standing are too old or score too little. A multiple of step(). 0: none.
  std::uint32_t LeastStanding(std::uint32_t boundary) const;
  // Of one of 2^partition_bits partitions; 0: any number.
  std::uint64_t RowsMax(std::uint32_t partition_bits) const {
    return rows_max_ == 0 ? 0 : ((rows_max_ - 1) >> partition_bits) + 1;
  }

 private:
  double decay_;
  double units_per_doubling_;   // time in which a score halves; 0: scores do not decay
  std::uint32_t lifetime_ = 0;  // how far below a boundary a standing may be; 0: any
  std::uint64_t rows_max_;
  std::uint32_t period_ = 1, step_ = 1;
  bool in_seconds_;
};

}  // namespace tarn::server
