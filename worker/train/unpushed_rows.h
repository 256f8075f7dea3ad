// The rows of one table that the batches in flight have yet to push. A batch that read such a row before the push would
// miss the worker's own update ("partial embedding conflict" in TorchRec). So these rows of a batch are pulled only
// when the newest batch in flight that has one of them has been pushed. The other rows of the batch are pulled at once
// if there are enough of them: a second pull costs one more message per shard.
//
//   rows.Split(batch, ended, plan, &parts);   // for each batch, in the order of their numbers
//
// The rows of a batch are a set of bits, one for each hash of a key. A row whose hash another row has may wait for a
// batch that does not have it; no row is pulled too early. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "worker/client/plan.h"

namespace tarn::worker {

class UnpushedRows {
 public:
  static constexpr std::size_t kBitsPerRow = 16, kBitsMin = 4096;

  // Some rows of a plan.
  struct Part {
    std::uint64_t after = 0;            // the batch that must be pushed first; 0: none
    std::vector<std::uint32_t> places;  // their indices in the plan, ascending; empty: all of the plan
    friend bool operator==(const Part&, const Part&) = default;
  };

  // ahead_min: if fewer rows of a batch than this could be pulled at once, all of its rows wait.
  explicit UnpushedRows(std::size_t ahead_min) : ahead_min_(ahead_min) {}

  // Adds the rows of batch `batch`, whose number is above those of all batches before, and divides them into one or two
  // parts. `ended`: batches up to this number are pushed; never decreases.
  void Split(std::uint64_t batch, std::uint64_t ended, const Plan& plan, std::vector<Part>* parts);

 private:
  // The hashes of the rows of one batch.
  class RowSet {
   public:
    // Overwrites `memory`, which saves an allocation.
    RowSet(std::uint64_t batch, std::span<const std::uint32_t> hashes, std::vector<std::uint64_t> memory);
    // Sets found[i] to 1 if the set has hashes[i]. Whether it has any.
    bool Mark(std::span<const std::uint32_t> hashes, std::vector<std::uint8_t>* found) const;
    std::uint64_t batch() const { return batch_; }
    std::vector<std::uint64_t> Take() { return std::move(bits_); }

   private:
    std::size_t WordOf(std::uint32_t hash) const { return hash >> 6 & (bits_.size() - 1); }

    std::uint64_t batch_;
    std::vector<std::uint64_t> bits_;  // their number is a power of two
  };

  std::size_t ahead_min_;
  std::deque<RowSet> in_flight_;       // ascending by batch
  std::vector<std::uint32_t> hashes_;  // scratch: by place
  std::vector<std::uint8_t> waits_;    // scratch: by place
};

}  // namespace tarn::worker
