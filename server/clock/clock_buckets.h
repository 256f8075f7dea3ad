// Aggregated pushes that wait for their clock to close (rule A2), and how a clock closes: bit for bit the same for any
// order of arrival and any spread of partitions over shards. Not thread-safe.
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
#include "server/clock/contribution.h"
#include "server/store/store.h"

namespace tarn::server {

// Puts the contributions of a clock into the order in which it closes: table, partition, worker, sequence.
void SortForClosing(std::vector<Contribution>* contributions);

class ClockBuckets {
 public:
  // What waits of one clock, in the order of arrival.
  struct Bucket {
    std::vector<Contribution> contributions;
    std::vector<TableId> tables;  // of them, each once
  };

  void Add(Clock clock, Contribution contribution);

  bool empty() const { return buckets_.empty(); }
  // The lowest clock of which something waits, and the lowest after `clock`.
  std::optional<Clock> First() const { return At(buckets_.begin()); }
  std::optional<Clock> Behind(Clock clock) const { return At(buckets_.upper_bound(clock)); }

  // Takes out the contributions of a clock to the tables for which closes(table) is true.
  template <typename Closes>
  std::vector<Contribution> Take(Clock clock, Closes closes) {
    const auto bucket = buckets_.find(clock);
    if (bucket == buckets_.end() || std::ranges::none_of(bucket->second.tables, closes)) return {};
    std::vector<TableId> kept;
    for (const TableId table : bucket->second.tables)
      if (!closes(table)) kept.push_back(table);
    return TakeAllBut(kept, bucket);
  }

  // Removes what `incarnation` pushed of clocks >= from (rule M3) and returns it.
  std::vector<std::pair<Clock, Contribution>> Void(Incarnation incarnation, Clock from);

  // Bytes of buffers held, and bookkeeping.
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
// sequence), beginning with the first as it is, multiplies by 1.0f / divisor, and applies each row once. Keeps its
// scratch memory between clocks. A row of a contribution that is not finite is left out (rule A5), as if its key were
// not in it.
class BucketCloser {
 public:
  // `contributions` are one table's, sorted. An error is the tier's.
  Status Close(Clock clock, std::span<const Contribution> contributions, std::uint32_t divisor, Store* rows);

 private:
  void SumPartition(const Contribution* begin, const Contribution* end, std::uint32_t dim, Store* rows);
  void ClearPlaces(const Contribution* begin, const Contribution* end);
  void AddOnly(std::uint32_t dim, const Contribution& contribution);
  void AddContribution(std::uint32_t dim, const Contribution& contribution, Store* rows);
  bool NamesAKeyTwice(std::span<const Key> keys);
  std::size_t DropNotFinite(std::uint32_t dim, const float* gradients, TableId table, Store* rows);
  std::uint32_t PlaceOf(Key key);
  Status Flush(const TableSpec& spec, Clock clock, float scale, Store* rows);

  // Summed rows that wait to be applied, partition by partition.
  std::vector<Section> sections_;
  std::vector<Key> keys_;
  std::vector<float> sums_;

  // Place in keys_ of each key of the current partition: open addressing; a slot counts if its stamp is current.
  struct Slot {
    Key key;
    std::uint32_t place;
    std::uint32_t stamp;
  };
  std::vector<Slot> slots_;
  std::uint32_t stamp_ = 0;
  std::vector<std::uint32_t> places_;
  std::vector<float*> targets_;
  std::vector<Key> added_;             // of one contribution
  std::vector<std::uint64_t> filter_;  // of NamesAKeyTwice
  std::vector<float> decoded_;
};

}  // namespace tarn::server
