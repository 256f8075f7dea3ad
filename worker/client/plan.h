// A plan: one batch's keys of one table, without duplicates and grouped by partition, ready to be pulled and pushed.
// Made on the caller's thread, free of I/O, reused for the pull and the push of the same batch. A GPU makes them too
// (worker/train/device_planner.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/message.h"
#include "core/position.h"
#include "kernels/unique.h"

namespace tarn::worker {

// A run of unique keys in one partition: keys [begin, begin + count) of the plan.
struct PlanRun {
  PartitionId partition;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

// What a plan that a GPU made has in its memory: complete as soon as the plan is, and there until its planner makes it
// anew or takes it back.
struct PlacedPlan {
  int gpu = 0;
  std::size_t occurrences = 0;           // keys of the caller
  const Key* keys = nullptr;             // as Plan::keys
  const std::uint32_t* index = nullptr;  // what Plan::index would be
};

struct Plan {
  TableId table;
  std::uint32_t dim = 0;
  // Unique, grouped by partition in ascending order of partition. Their order within one follows from the keys of the
  // caller alone: that of the first occurrence where the host made the plan, else that of their positions.
  std::vector<Key> keys;
  std::vector<PlanRun> runs;  // ascending partitions, none empty
  // For each key of the caller, in its order: which of `keys` it is. Empty where a GPU made the plan.
  std::vector<std::uint32_t> index;
  const PlacedPlan* placed = nullptr;  // if a GPU made the plan
};

// Where the rows of a plan belong in the order of the caller's keys: what Plan::index says, read from the plan's side.
struct CallerOrder {
  struct Repeat {
    std::uint32_t occurrence = 0;  // of a key that occurred before
    std::uint32_t first = 0;       // where it did first
  };
  std::vector<std::uint32_t> first;  // for each key of the plan: its first occurrence
  std::vector<Repeat> repeats;       // in order of occurrence
};

// Makes plans without allocating once it is warm. One thread at a time.
class Planner {
 public:
  explicit Planner(std::uint32_t partition_bits) : partition_bits_(partition_bits) {}
  // keys: any number below 2^31, duplicates allowed; keys of a dense table are below its rows. Within a partition the
  // plan's keys stand in the order of their first occurrence. A plan that a GPU made is taken back first. `order` may
  // be null: it is not wanted.
  void Make(TableId table, std::uint32_t dim, const Positioner& positioner, std::span<const Key> keys, Plan* plan,
            CallerOrder* order = nullptr);

 private:
  void Group(const Positioner& positioner, std::span<const Key> unique, Plan* plan);
  void NoteOrder(std::span<const std::uint32_t> index, std::size_t unique, CallerOrder* order) const;

  std::uint32_t partition_bits_;
  kernels::UniqueScratch scratch_;
  std::vector<Key> unique_;
  std::vector<std::uint32_t> partition_of_, order_, offsets_, place_;
};

// The keys of `plan` at `places`, which ascend, as a plan of their own; it has no index.
Plan PartOf(const Plan& plan, std::span<const std::uint32_t> places);

// Of plans that the host made. Rows per occurrence (index.size() x dim) summed into rows per unique key
// (keys.size() x dim), in order of occurrence: the same bits every time.
void SumDuplicates(const Plan& plan, std::uint32_t dim, const float* per_occurrence, float* unique);

}  // namespace tarn::worker
