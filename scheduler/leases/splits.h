// The splits of one pass over one data set: free, leased, partly trained or done (rules D1, D2, D6). Plain bookkeeping
// without clocks or messages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/message.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// Position of each worker incarnation in its training leases.
using Positions = std::map<Incarnation, DataPosition>;

struct SplitsOptions {
  LeasePurpose purpose = LeasePurpose::kTrain;
  std::uint32_t epoch = 0;
  std::uint64_t rows = 0;        // of the data set
  std::uint64_t split_rows = 0;  // > 0; the last block of the set may be shorter
  std::uint64_t batch_rows = 1;
  std::vector<std::uint64_t> batch_rows_by_rank;  // of the owners; empty: batch_rows
  // Number of ranks that own splits (rule D2); 0: no rank owns any. With equal batches split i belongs to rank i mod
  // owners.
  std::uint32_t owners = 0;
  bool shuffle = false;  // random order of the blocks, determined by `seed` and the epoch
  std::uint64_t seed = 0;
};

class Splits {
 public:
  Splits() = default;
  // trained[i]: already trained rows of split i, from a checkpoint; empty: none.
  explicit Splits(const SplitsOptions& options, const std::vector<std::uint64_t>& trained = {});

  // The next free split for a worker of this rank: one of its own, else one of a rank without a live worker.
  std::optional<std::uint32_t> Next(WorkerRank rank, const std::set<WorkerRank>& live) const;
  // Number of untrained batches of a split. `rank`: of the worker that trains them, by default the owning one; the
  // batches have the size of the smaller rank.
  std::uint64_t BatchesLeft(std::uint32_t split, std::optional<WorkerRank> rank = {}) const;
  // Leases a free split.
  LeaseGrant Grant(std::uint32_t split, LeaseId id, Incarnation owner, std::optional<WorkerRank> rank = {});

  // The owner reports a lease as done. Returns false and changes nothing if it does not have that lease.
  bool Done(Incarnation owner, const LeaseDone& done);
  // The owner's incarnation has ended at this position: rows before it stay trained, the rest becomes free. `hold`:
  // partly trained splits cannot be leased until Release (rule K1). `take_back`: leases reported as done beyond the
  // position are not done (rule G4).
  void Take(Incarnation owner, const DataPosition& position, bool hold, bool take_back = false);
  void Release();

  std::uint64_t size() const { return splits_.size(); }
  std::uint64_t rows() const { return options_.rows; }
  std::uint64_t done() const { return done_; }
  bool AllDone() const { return done_ == splits_.size(); }
  std::uint64_t free() const { return free_count_; }
  std::uint64_t OpenLeases(Incarnation owner) const;
  // The largest number of batches owned by one rank; 0 without owners.
  std::uint64_t MostOwnedBatches() const { return most_owned_batches_; }
  // The number of ranks that own no split; 0 without owners.
  std::uint32_t RanksWithoutSplits() const;

  // Trained rows of each split by the positions in `at`. `trust_done`: leases reported as done count as done for any
  // position. Incarnations that are not in `at` count by their reports and final positions.
  std::vector<std::uint64_t> Trained(const Positions& at, bool trust_done) const;

  // Trained rows of each split without those of the leases in `kept`: the open leases, and the last few done ones of
  // owners that have not ended.
  std::vector<std::uint64_t> Capture(std::vector<KeptLease>* kept) const;
  // Restores the result of Capture. Must be called right after construction.
  void Restore(const std::vector<KeptLease>& kept);

  // Quality over all leases reported as done. The loss is summed in the order of splits, so its bits do not depend on
  // the order of reports.
  Quality quality() const;
  // Quality of an earlier part of this pass, from a checkpoint.
  void SetEarlierQuality(const Quality& quality) { earlier_ = quality; }

 private:
  enum class Outcome : std::uint8_t { kOpen, kDone, kTaken };  // kTaken: its owner has ended
  struct Split {
    std::uint64_t first_row = 0, rows = 0;
    std::uint64_t restored = 0;  // trained before this scheduler started
    std::uint64_t trained = 0;   // restored rows, and those of leases that are done or whose owner has ended
    double loss_sum = 0;
  };
  struct Record {
    std::uint32_t split = 0;
    Incarnation owner;
    Outcome outcome = Outcome::kOpen;
    std::uint64_t trained = 0;  // kTaken: rows of the split that were trained when the owner ended
    std::uint64_t before = 0;   // trained rows when it was granted
  };

  void ChooseOwners();
  std::uint32_t OwnerOf(std::uint32_t split) const {
    if (!owners_.empty()) return owners_[split];
    return options_.owners == 0 ? 0 : split % options_.owners;
  }
  std::uint64_t BatchRows(std::uint32_t split, std::optional<WorkerRank> rank) const;
  void Free(std::uint32_t split);
  std::uint64_t CountOwnedBatches() const;

  SplitsOptions options_;
  std::vector<Split> splits_;
  std::vector<std::uint32_t> owners_;                      // of each split, if the batches of ranks differ
  std::map<std::uint32_t, std::set<std::uint32_t>> free_;  // by owning rank (0 without owners)
  std::uint64_t free_count_ = 0;
  std::set<std::uint32_t> held_;
  std::map<LeaseId, Record> records_;
  std::map<Incarnation, std::uint64_t> open_;
  std::uint64_t done_ = 0, most_owned_batches_ = 0;
  Quality quality_, earlier_;
};

}  // namespace tarn::scheduler
