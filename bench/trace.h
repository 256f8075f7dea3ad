// Traces of pulls: batches of Zipf-distributed look-ups, each row once per batch, like the pulls of a client; and the
// optimal hit rate on a trace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "bench/zipf.h"
#include "core/hash.h"

namespace tarn::bench {

struct Trace {
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::uint32_t rows = 0;
  std::vector<std::uint32_t> accesses;  // rows, ordered by batch
  std::vector<std::size_t> ends;        // end of each batch in `accesses`
};

// Makes batches of `batch` look-ups until there are about `accesses`. A share `scans` of the batches reads the rows in
// turn instead, in steps of kScanStride and however frequent they are, like an evaluation or an export.
inline Trace MakeTrace(std::uint32_t rows, double exponent, double scans, std::size_t batch, std::size_t accesses) {
  constexpr std::uint64_t kScanStride = 7919;
  SplitMix random(7);
  const Zipf zipf(rows, exponent);
  Trace trace{rows, {}, {}};
  std::vector<std::uint32_t> in_batch(rows, Trace::kNone);
  std::uint64_t scanned = 0;
  for (std::uint32_t n = 0; trace.accesses.size() < accesses; ++n) {
    const bool scan = random.Chance(scans);
    for (std::size_t i = 0; i < batch; ++i) {
      const auto row = static_cast<std::uint32_t>(scan ? scanned++ * kScanStride % rows : zipf.Next(random));
      if (in_batch[row] != n) trace.accesses.push_back(row);
      in_batch[row] = n;
    }
    trace.ends.push_back(trace.accesses.size());
  }
  return trace;
}

// The optimal hit rate over the second half of the trace: always evicts the row with the latest next use (Belady 1966).
// `filled`: memory initially contains the most likely rows.
inline double Belady(const Trace& trace, std::size_t slots, bool filled = false) {
  const std::size_t count = trace.accesses.size();
  std::vector<std::uint32_t> next(count), last(trace.rows, Trace::kNone);
  for (std::size_t i = count; i-- > 0;) {
    next[i] = last[trace.accesses[i]];
    last[trace.accesses[i]] = static_cast<std::uint32_t>(i);
  }
  std::vector<std::uint32_t> next_of(trace.rows, 0);
  std::vector<bool> resident(trace.rows, false);
  std::priority_queue<std::pair<std::uint32_t, std::uint32_t>> farthest;  // may have outdated entries
  std::size_t used = 0, hits = 0;
  for (; filled && used < std::min<std::size_t>(slots, trace.rows); ++used) {
    const auto row = static_cast<std::uint32_t>(used);
    resident[row] = true;
    next_of[row] = last[row];
    farthest.emplace(next_of[row], row);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t row = trace.accesses[i];
    if (resident[row]) hits += i >= count / 2 ? 1 : 0;
    for (; !resident[row] && used == slots; farthest.pop()) {
      const auto [when, victim] = farthest.top();
      if (!resident[victim] || next_of[victim] != when) continue;
      resident[victim] = false;
      --used;
    }
    used += resident[row] ? 0 : 1;
    resident[row] = true;
    next_of[row] = next[i];
    farthest.emplace(next[i], row);
  }
  const std::size_t counted = count - count / 2;
  return static_cast<double>(hits) / static_cast<double>(counted);
}

}  // namespace tarn::bench
