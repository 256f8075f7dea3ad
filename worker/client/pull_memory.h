// What a worker remembers of its pulls for the pushes of the same rows: the versions of the partitions when the shards
// answered, the least minimum clock of the answers and, for update rules that need them, the rows (rules E8 and A6 of
// docs/protocol.md). A push names the clock for which its rows were pulled. Internal to worker/; one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/table/table_spec.h"
#include "worker/client/completion.h"
#include "worker/client/plan.h"

namespace tarn::worker {

// Whether pushes to the table carry the rows as they were pulled.
bool NeedsPulled(const TableSpec& spec);

// The codec in which pushes carry such rows: that of pulls if it encodes each value separately, because encoding the
// pulled values again then loses nothing; else fp32.
ValueCodec PulledCodec(const TableSpec& spec);

// One pull. Its parts arrive one by one.
class PullRecord {
 public:
  PullRecord(const Plan& plan, Clock use, bool keeps_rows);

  Clock use() const { return use_; }
  // Bytes of the rows that the record keeps, with their keys; 0 if it keeps none.
  std::size_t bytes() const { return keys_.size() * (sizeof(Key) + dim_ * sizeof(float)); }

  // The rows of `parts` came from partitions at `versions`, when their shard had this minimum clock.
  void NoteReply(std::span<const PlanRun> parts, std::span<const Version> versions, Clock min_clock);
  // Some rows of the partition have at least this version. Several notes of a partition: the oldest counts.
  void NoteVersion(PartitionId partition, Version version);
  void NoteClock(Clock min_clock) { seen_ = std::min(seen_, min_clock); }
  // Stores these rows of the plan, if the record keeps rows.
  void NoteRows(const PulledRows& rows);

  Version VersionOf(PartitionId partition) const;  // kNoVersion: not known
  Clock seen() const { return seen_; }             // the least minimum clock; UINT64_MAX: not known
  // Whether the record keeps rows and all have arrived.
  bool HasRows() const { return keeps_rows_ && arrived_ == keys_.size(); }
  // The row of a key; null: it was not pulled, or not all rows have arrived.
  const float* RowOf(Key key) const;
  bool HasKeys(const std::vector<Key>& keys) const { return keys_ == keys; }
  const Buffer& rows() const { return rows_; }

 private:
  struct Oldest {  // the oldest version of the rows of a partition; kNoVersion: not known
    PartitionId partition;
    Version version = kNoVersion;
  };
  // The entry of a partition; versions_.size(): the plan has no rows of it.
  std::size_t Find(PartitionId partition) const;

  Clock use_;
  Clock seen_{UINT64_MAX};
  std::vector<Oldest> versions_;  // by run of the plan
  bool keeps_rows_;
  std::uint32_t dim_;
  std::vector<Key> keys_;                                  // of the plan, if it keeps rows
  Buffer rows_;                                            // in the order of keys_; empty until the first reply
  std::size_t arrived_ = 0;                                // number of rows in rows_
  mutable std::unordered_map<Key, std::uint32_t> places_;  // made at the first RowOf
};

// Where the rows of a push come from.
struct PushOrigin {
  Clock seen;                     // PushPart::pulled_clock
  std::vector<Version> versions;  // by run of the push's plan
  Buffer pulled;                  // the rows (fp32, the plan's order), if the table's rule needs them
};

class PullMemory {
 public:
  // Returns a new record, for a pull of the plan's rows for use at `use`. Forgets the table's oldest records beyond the
  // limits on their number and bytes.
  std::shared_ptr<PullRecord> Begin(const Plan& plan, const TableSpec& spec, Clock use);
  // The newest pull of the table for use at `use`; null: none is remembered.
  std::shared_ptr<PullRecord> Newest(TableId table, Clock use);

  // For tables of which the worker caches rows. NoteHistory notes the version of a partition when a shard answered a
  // pull for use at `use`. It forgets answers whose rows are no longer read: those that are more than `bound` clocks
  // older than the newest answer, or than `use` if that is earlier, because shards may have passed a late worker (rule
  // C8). OldestSince returns a version that is not newer than any cached row of the partition that came with a minimum
  // clock of at least `oldest`; kNoVersion: not known.
  void NoteHistory(TableId table, PartitionId partition, Version version, Clock min_clock, Clock use,
                   std::uint64_t bound);
  Version OldestSince(TableId table, PartitionId partition, Clock oldest) const;

  // The origin of a push of the plan's rows at `clock`. They were pulled for use at `uses.use` or, if they came late
  // (rule C8), for the earlier clock `uses.from`, which otherwise equals `uses.use`. kInvalidArgument: the rule needs a
  // row that was not pulled, or is forgotten.
  struct Uses {
    Clock use, from;
    bool Has(Clock clock) const { return clock == use || clock == from; }
  };
  Expected<PushOrigin> OriginOf(const Plan& plan, const TableSpec& spec, Clock clock, Uses uses) const;

  std::uint64_t Hash() const;

 private:
  struct Seen {
    Clock min_clock;
    Version version;
  };
  struct Table {
    std::deque<std::shared_ptr<PullRecord>> records;  // newest last
    std::map<PartitionId, std::deque<Seen>> history;  // ascending in both
  };
  static Expected<Buffer> RowsOf(const Plan& plan, const TableSpec& spec, Uses uses, const Table* table);

  std::map<TableId, Table> tables_;
};

}  // namespace tarn::worker
