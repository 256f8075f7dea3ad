// A plan: the keys of one table in one batch, without duplicates and grouped by partition. It is made on the caller's
// thread without I/O, and used for both the pull and the push of the batch. A GPU can make plans too
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

// The part of a plan in the memory of the GPU that made it. Valid until its planner makes the plan again or takes it
// back.
struct PlacedPlan {
  int gpu = 0;
  std::size_t occurrences = 0;           // number of the caller's keys
  const Key* keys = nullptr;             // as Plan::keys
  const std::uint32_t* index = nullptr;  // the equivalent of Plan::index
};

struct Plan {
  TableId table;
  std::uint32_t dim = 0;
  // Unique, grouped by ascending partition. Their order within a partition depends only on the caller's keys: the order
  // of first occurrence if the host made the plan, that of positions if a GPU made it.
  std::vector<Key> keys;
  std::vector<PlanRun> runs;  // ascending partitions, none empty
  // For each key of the caller its index in `keys`. Empty if a GPU made the plan.
  std::vector<std::uint32_t> index;
  const PlacedPlan* placed = nullptr;  // if a GPU made the plan
};

// The inverse of Plan::index: the positions of a plan's rows in the caller's order.
struct CallerOrder {
  struct Repeat {
    std::uint32_t occurrence = 0;  // a further occurrence of a key
    std::uint32_t first = 0;       // the first occurrence of the key
  };
  std::vector<std::uint32_t> first;  // first occurrence of each key of the plan
  std::vector<Repeat> repeats;       // in order of occurrence
};

// Makes plans: finds the distinct keys once, and places them for each table. Reuses memory, so that it rarely
// allocates. One thread at a time. If a GPU made `plan`, take it back first (DevicePlanner::TakeBack). `order`: output,
// may be null.
class Planner {
 public:
  explicit Planner(std::uint32_t partition_bits) : partition_bits_(partition_bits) {}

  // The keys of the next plans: fewer than 2^31, duplicates allowed.
  void SetKeys(std::span<const Key> keys);
  // Appends to them; SetKeys comes first.
  void AddKeys(std::span<const Key> keys);
  // The plan of a table for these keys; those of a dense table must be below its rows.
  void Place(TableId table, std::uint32_t dim, const Positioner& positioner, Plan* plan, CallerOrder* order = nullptr);

  // SetKeys and Place.
  void Make(TableId table, std::uint32_t dim, const Positioner& positioner, std::span<const Key> keys, Plan* plan,
            CallerOrder* order = nullptr);

 private:
  void Group(const Positioner& positioner, Plan* plan);
  void NoteOrder(CallerOrder* order) const;

  std::uint32_t partition_bits_;
  kernels::UniqueScratch scratch_;
  std::size_t n_keys_ = 0, n_unique_ = 0;
  // These vectors never shrink, so that they are not filled again.
  std::vector<Key> unique_;                                            // n_unique_ keys, by first occurrence
  std::vector<std::uint32_t> index_;                                   // for each of the n_keys_ its place in unique_
  std::vector<std::uint32_t> partition_of_, order_, offsets_, place_;  // scratch of Group; place_: of unique_ in a plan
};

// The plan of all rows of a dense table, in order. `seed`: of the job.
Plan PlanOfAll(const TableSpec& spec, std::uint64_t seed, std::uint32_t partition_bits);

// A plan of the keys of `plan` at the ascending indices `places`. It has no `index`.
Plan PartOf(const Plan& plan, std::span<const std::uint32_t> places);

// For plans that the host made: sums rows per occurrence (index.size() x dim) into rows per unique key (keys.size() x
// dim), in order of occurrence, so the bits are reproducible.
void SumDuplicates(const Plan& plan, std::uint32_t dim, const float* per_occurrence, float* unique);

}  // namespace tarn::worker
