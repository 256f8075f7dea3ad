// Aggregated pushes that wait for their clock to close (rule A2), and the closing of a clock. The results are
// bit-identical for any order of arrival and any distribution of partitions over shards. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/message.h"
#include "kernels/unique.h"
#include "server/clock/contribution.h"
#include "server/store/store.h"

namespace tarn::server {

// Sorts the contributions of a clock into the order in which they are summed: table, partition, worker, sequence.
void SortForClosing(std::vector<Contribution>* contributions);

class ClockBuckets {
 public:
  // The waiting contributions of one clock, in order of arrival.
  struct Bucket {
    std::vector<Contribution> contributions;
    std::vector<TableId> tables;  // of `contributions`, each once; Void does not remove any
  };

  void Add(Clock clock, Contribution contribution);

  bool empty() const { return buckets_.empty(); }
  // The lowest clock with waiting contributions, and the lowest such clock after `clock`; nullopt: there is none.
  std::optional<Clock> First() const { return At(buckets_.begin()); }
  std::optional<Clock> Behind(Clock clock) const { return At(buckets_.upper_bound(clock)); }

  // Removes and returns the contributions of a clock to the tables for which closes(table) is true.
  template <typename Closes>
  std::vector<Contribution> Take(Clock clock, Closes closes) {
    const auto bucket = buckets_.find(clock);
    if (bucket == buckets_.end() || std::ranges::none_of(bucket->second.tables, closes)) return {};
    std::vector<TableId> kept;
    for (const TableId table : bucket->second.tables)
      if (!closes(table)) kept.push_back(table);
    return TakeAllBut(kept, bucket);
  }

  // Removes and returns the pushes of `incarnation` for clocks >= from (rule M3).
  std::vector<std::pair<Clock, Contribution>> Void(Incarnation incarnation, Clock from);

  // Bytes of buffers and bookkeeping.
  std::size_t bytes() const { return bytes_; }
  const std::map<Clock, Bucket>& buckets() const { return buckets_; }

 private:
  using Buckets = std::map<Clock, Bucket>;

  static std::size_t Cost(const Contribution& contribution) { return contribution.bytes + sizeof(Contribution); }
  std::optional<Clock> At(Buckets::const_iterator bucket) const {
    return bucket == buckets_.end() ? std::nullopt : std::optional(bucket->first);
  }
  std::vector<Contribution> TakeAllBut(const std::vector<TableId>& kept, Buckets::iterator bucket);

  Buckets buckets_;
  std::size_t bytes_ = 0;
};

// Applies the pushes of one clock to a table: sums each row's contributions in the order (worker rank, incarnation,
// sequence), starting with an unchanged copy of the first, multiplies by 1.0f / divisor, and applies each row once.
// Rows of a contribution that are not finite are left out (rule A5). Keeps its scratch memory between clocks.
class BucketCloser {
 public:
  // `contributions`: of one table, sorted. Assignments and deletions are applied after the sums, in their order.
  // Errors are those of the tier.
  Status Close(Clock clock, std::span<const Contribution> contributions, std::uint32_t divisor, Store* rows);

 private:
  Status CloseSteps(Clock clock, std::span<const Contribution> steps, std::uint32_t divisor, Store* rows);
  Status Change(Clock clock, const Contribution& contribution, Store* rows);
  void SumPartition(const Contribution* begin, const Contribution* end, std::uint32_t dim, Store* rows);
  void AddSection(Clock clock, const Contribution* begin, const Contribution* end, std::size_t first);
  void AddOnly(std::uint32_t dim, const Contribution& contribution);
  void AddContribution(std::uint32_t dim, const Contribution& contribution, std::size_t first, Store* rows);
  bool NamesAKeyTwice(std::span<const Key> keys);
  std::size_t DropNotFinite(std::uint32_t dim, const float* gradients, std::size_t begin, TableId table, Store* rows);
  Status Flush(const TableSpec& spec, Clock clock, float scale, Store* rows);

  // Summed rows that are not applied yet, ordered by partition.
  std::vector<Section> sections_;
  std::vector<Key> keys_;
  std::vector<float> sums_;
  std::uint64_t staleness_ = 0;  // the largest of the contributions to them

  kernels::UniqueScratch unique_;      // the keys of the current partition
  std::vector<std::uint32_t> places_;  // of the keys of one contribution: their indices among these
  std::vector<float*> targets_;        // the sums of these keys
  std::vector<std::uint64_t> filter_;  // of NamesAKeyTwice
  std::vector<float> decoded_;
};

}  // namespace tarn::server
