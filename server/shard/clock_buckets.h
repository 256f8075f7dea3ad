// Aggregated pushes that wait for their clock to close (rule A2), and how a clock closes: bit for bit the same for any
// order of arrival and any spread of partitions over shards. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/message.h"
#include "server/store/store.h"

namespace tarn::server {

// One section of one push. Buffers are the message's own, shared.
struct Contribution {
  TableId table;
  PartitionId partition;
  WorkerRank rank;
  Incarnation incarnation;
  Sequence sequence;
  std::uint32_t count = 0;
  KeyCodec key_codec = KeyCodec::kRaw;
  Key first_key = 0;           // kRange
  Buffer keys;                 // kRaw
  std::size_t key_offset = 0;  // in keys
  ValueCodec codec = ValueCodec::kFp32;
  Buffer values;
  std::size_t value_offset = 0;  // in bytes
  std::size_t bytes = 0;         // what it holds of buffers
};

class ClockBuckets {
 public:
  void Add(Clock clock, Contribution contribution);

  // Whether a push of `clock` is waiting that closes when the minimum clock is `minimum`.
  bool HasClockBelow(Clock minimum) const { return !buckets_.empty() && buckets_.begin()->first < minimum; }
  bool empty() const { return buckets_.empty(); }

  // Takes out the pushes of the lowest clock. Not empty().
  std::pair<Clock, std::vector<Contribution>> TakeLowest();

  // Removes what `incarnation` pushed of clocks >= from (rule M3) and returns it.
  std::vector<std::pair<Clock, Contribution>> Void(Incarnation incarnation, Clock from);

  // Bytes of buffers held, and bookkeeping.
  std::size_t bytes() const { return bytes_; }
  const std::map<Clock, std::vector<Contribution>>& buckets() const { return buckets_; }

 private:
  static std::size_t Cost(const Contribution& contribution) { return contribution.bytes + sizeof(Contribution); }

  std::map<Clock, std::vector<Contribution>> buckets_;
  std::size_t bytes_ = 0;
};

// Applies the pushes of one clock: sums each row's contributions in the order (worker rank, incarnation, sequence),
// beginning with the first as it is, multiplies by 1.0f / cohort size, and applies each row once. Keeps its scratch
// memory between clocks. A row of a contribution that is not finite is left out (rule A5), as if its key were not in
// it.
class BucketCloser {
 public:
  // An error is the tier's.
  Status Close(Clock clock, std::vector<Contribution> contributions, std::uint32_t cohort_size, Store* rows);

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
