// Counts of a fragment's rows by class of standing (server/store/life.h), and the verdicts by which rows have expired.
// With these, a fragment decides at a boundary which rows expire, without reading any row. Expired rows are not
// counted. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "server/store/life.h"

namespace tarn::server {

// The decision at a boundary: a row has expired if its last push was before `before`, the time of the boundary, and its
// standing is below `least_standing`.
struct Verdict {
  std::uint32_t before = 0;
  std::uint32_t least_standing = 0;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// The verdicts that may still apply to rows. A later verdict does not replace an earlier, stricter one.
class Verdicts {
 public:
  bool empty() const { return verdicts_.empty(); }
  bool Expired(const LifeRules& rules, RowLife life) const {
    for (const Verdict& verdict : verdicts_)
      if (life.last < verdict.before && rules.Standing(life) < verdict.least_standing) return true;
    return false;
  }
  void Add(Verdict verdict);
  void Clear() { verdicts_.clear(); }

 private:
  std::vector<Verdict> verdicts_;  // each later than the one before, and less strict
};

class Standings {
 public:
  // Add counts a row; Drop removes it from the counts.
  void Add(std::uint32_t standing, std::uint32_t step);
  void Drop(std::uint32_t standing, std::uint32_t step);

  // Decides at a boundary. Rows with a standing below `least` expire. Then the lowest class expires as long as more
  // than rows_max rows (0: unbounded) of more than one class remain. Returns the standing below which rows have
  // expired, a multiple of step; 0 if nothing expired.
  std::uint32_t Decide(std::uint32_t least, std::uint64_t rows_max, std::uint32_t step);

  std::uint64_t rows() const { return rows_; }
  void Clear() { classes_.clear(), rows_ = 0; }
  std::size_t memory_bytes() const { return classes_.size() * kNodeBytes; }

 private:
  static constexpr std::size_t kNodeBytes = 48;  // of a map with small values

  // Rows by class. With a slow decay of scores there may be nearly as many classes as rows.
  std::map<std::uint32_t, std::uint32_t> classes_;
  std::uint64_t rows_ = 0;
};

}  // namespace tarn::server
