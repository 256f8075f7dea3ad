// Hit rates of eviction policies on traces of pulls, compared with Belady's optimum, which knows the future. A trace
// has batches of Zipf-distributed look-ups, each key once per batch, like the pulls of a client. A share of its batches
// (0 or 0.2, column "scans") reads the rows in turn instead, however frequent they are, like an evaluation or an
// export. Only the second half of a trace counts.
//
//   eviction_policies --rows 1000000 --accesses 10000000
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "bench/trace.h"
#include "core/hash.h"
#include "server/tier/use_count.h"

namespace tarn::bench {
namespace {

constexpr std::uint32_t kNone = Trace::kNone;

// A policy has Insert(slot, row), Use(slot, row) and Victim(row_of_slot), which selects and removes a slot.
template <typename Policy>
double HitRate(const Trace& trace, std::size_t slots) {
  Policy policy(trace.rows, slots);
  std::vector<std::uint32_t> slot_of(trace.rows, kNone), row_of(slots, kNone);
  std::uint32_t used = 0;
  std::size_t hits = 0;
  const std::size_t count = trace.accesses.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t row = trace.accesses[i];
    if (slot_of[row] != kNone) {
      hits += i >= count / 2 ? 1 : 0;
      policy.Use(slot_of[row], row);
      continue;
    }
    std::uint32_t slot = used;
    if (used < slots) {
      ++used;
    } else {
      slot = policy.Victim(row_of);
      slot_of[row_of[slot]] = kNone;
    }
    slot_of[row] = slot;
    row_of[slot] = row;
    policy.Insert(slot, row);
  }
  const std::size_t counted = count - count / 2;
  return static_cast<double>(hits) / static_cast<double>(counted);
}

// CLOCK with counters up to kMax; kMax = 1 is the classic CLOCK.
template <std::uint8_t kMax>
class ClockPolicy {
 public:
  ClockPolicy(std::size_t, std::size_t slots) : counts_(slots, 0) {}
  void Insert(std::uint32_t slot, std::uint32_t) { counts_[slot] = 0; }
  void Use(std::uint32_t slot, std::uint32_t) { counts_[slot] = std::min<std::uint8_t>(kMax, counts_[slot] + 1); }
  std::uint32_t Victim(const std::vector<std::uint32_t>&) {
    for (;; --counts_[hand_], Step())
      if (counts_[hand_] == 0) {
        const std::uint32_t victim = hand_;
        Step();
        return victim;
      }
  }

 private:
  void Step() { hand_ = hand_ + 1 == counts_.size() ? 0 : hand_ + 1; }
  std::vector<std::uint8_t> counts_;
  std::uint32_t hand_ = 0;
};

// Yang et al., "FIFO queues are all you need for cache eviction" (SOSP 2023): a tenth of the slots is a probationary
// queue; a row that returns soon after it left that queue goes to the main queue.
class S3FifoPolicy {
 public:
  S3FifoPolicy(std::size_t rows, std::size_t slots) : slots_(slots), uses_(slots, 0), evicted_at_(rows, 0) {}
  void Use(std::uint32_t slot, std::uint32_t) { uses_[slot] = std::min<std::uint8_t>(3, uses_[slot] + 1); }
  void Insert(std::uint32_t slot, std::uint32_t row) {
    uses_[slot] = 0;
    const bool again = evicted_at_[row] != 0 && evictions_ - evicted_at_[row] < slots_ * 9 / 10;
    (again ? main_ : probation_).push_back(slot);
    evicted_at_[row] = 0;
  }
  std::uint32_t Victim(const std::vector<std::uint32_t>& row_of) {
    for (;;) {
      const bool on_probation = probation_.size() >= slots_ / 10 || main_.empty();
      std::deque<std::uint32_t>& queue = on_probation ? probation_ : main_;
      const std::uint32_t slot = queue.front();
      queue.pop_front();
      if (uses_[slot] > (on_probation ? 1 : 0)) {
        uses_[slot] = on_probation ? 0 : uses_[slot] - 1;
        main_.push_back(slot);
        continue;
      }
      if (on_probation) evicted_at_[row_of[slot]] = ++evictions_;
      return slot;
    }
  }

 private:
  std::size_t slots_;
  std::vector<std::uint8_t> uses_;
  std::uint32_t evictions_ = 0;            // from probation_, so far
  std::vector<std::uint32_t> evicted_at_;  // by row: evictions_ when it left probation_; 0: not since its last Insert
  std::deque<std::uint32_t> probation_, main_;
};

// The policy of tarn (server/tier/use_count.h).
class LeastUsedPolicy {
 public:
  LeastUsedPolicy(std::size_t rows, std::size_t slots) : slots_(slots), counts_(rows, 0) {}
  void Insert(std::uint32_t, std::uint32_t row) { Count(row); }
  void Use(std::uint32_t, std::uint32_t row) { Count(row); }
  std::uint32_t Victim(const std::vector<std::uint32_t>& row_of) {
    if (victims_.empty()) FindVictims(row_of);
    const std::uint32_t victim = victims_.back();
    victims_.pop_back();
    return victim;
  }

 private:
  void Count(std::uint32_t row) {
    counts_[row] = static_cast<std::uint8_t>(server::AfterUse(counts_[row], random_));
    for (std::uint64_t due = aging_.Due(1, counts_.size(), slots_); due != 0; --due) {
      counts_[aged_] = static_cast<std::uint8_t>(server::AfterAging(counts_[aged_], random_));
      aged_ = aged_ + 1 == counts_.size() ? 0 : aged_ + 1;
    }
  }
  void FindVictims(const std::vector<std::uint32_t>& row_of) {
    const std::size_t wanted = std::clamp<std::size_t>(slots_ / server::kVictimWindow / 4, 1, 512);
    std::vector<std::uint8_t> counts;
    for (std::size_t i = 0; i < std::min(slots_, wanted * server::kVictimWindow); ++i) {
      victims_.push_back(hand_);
      counts.push_back(counts_[row_of[hand_]]);
      hand_ = hand_ + 1 == slots_ ? 0 : hand_ + 1;
    }
    server::KeepLeastUsed(&victims_, counts, wanted);
    std::ranges::reverse(victims_);
  }

  std::size_t slots_;
  std::vector<std::uint8_t> counts_;
  std::vector<std::uint32_t> victims_;
  server::Aging aging_;
  SplitMix random_{1};
  std::size_t aged_ = 0;
  std::uint32_t hand_ = 0;
};

}  // namespace
}  // namespace tarn::bench

int main(int argc, char** argv) {
  using namespace tarn::bench;
  std::uint32_t rows = 1'000'000;
  std::size_t accesses = 10'000'000, batch = 8192;
  CLI::App app{"Hit rates of eviction policies on Zipf traces, compared with the optimum."};
  app.add_option("--rows", rows, "rows of the table")->capture_default_str();
  app.add_option("--accesses", accesses, "approximate accesses per trace")->capture_default_str();
  app.add_option("--batch", batch, "look-ups per batch, including duplicates")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  fmt::print("{} rows, {} accesses; hit rates\n", rows, accesses);
  fmt::print("{:>6} {:>5} {:>5} {:>8} {:>8} {:>8} {:>8} {:>10}\n", "memory", "zipf", "scans", "optimum", "CLOCK",
             "CLOCK-3", "S3-FIFO", "LFU (ours)");
  for (double share : {0.25, 0.05})
    for (double exponent : {0.9, 1.05, 1.2})
      for (double scans : {0.0, 0.2}) {
        const Trace trace = MakeTrace(rows, exponent, scans, batch, accesses);
        const auto slots = static_cast<std::size_t>(share * rows);
        fmt::print("{:>6} {:>5} {:>5} {:>8.4f} {:>8.4f} {:>8.4f} {:>8.4f} {:>10.4f}\n", share, exponent, scans,
                   Belady(trace, slots), HitRate<ClockPolicy<1>>(trace, slots), HitRate<ClockPolicy<3>>(trace, slots),
                   HitRate<S3FifoPolicy>(trace, slots), HitRate<LeastUsedPolicy>(trace, slots));
      }
  return 0;
}
