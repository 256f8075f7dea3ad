// Storage for the checkpoints of one shard. The shard passes the rows of a cut in chunks, which the store writes in the
// background; the shard's loop passes the reports to Shard::OnCheckpointWritten. An interface, so that a simulated
// fleet can store its checkpoints in memory. All functions are called on the shard's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/error.h"
#include "core/message.h"
#include "core/table/table_spec.h"
#include "server/store/snapshot.h"

namespace tarn::server {

// Receives the rows of a checkpoint while they are read. An error that a function returns ends CheckpointStore::Load,
// which returns it.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // Whether the sink needs rows of partition `partition` of 2^partition_bits. It may receive others too.
  virtual bool Wants(PartitionId partition, std::uint32_t partition_bits) const = 0;
  // The table to which the following calls refer; may be called several times for a table. The error rejects a table of
  // another shape, or an unknown one.
  virtual Status OnTable(const TableSpec& spec) = 0;
  // Records of that table, keys.size() x RowWords words, in batches of any size. If a key occurs several
  // times, its last record counts.
  virtual Status OnRows(std::span<const Key> keys, std::span<const std::uint32_t> rows) = 0;
  // Keys of that table whose rows, if they were passed before, are removed.
  virtual Status OnRemoved(std::span<const Key> keys) = 0;
  // Keys of that table that wait for admission, each once, with the numbers of their pushes.
  virtual Status OnSeen(std::span<const Seen> seen) = 0;
  // The version and the rule's state of that table in partition `partition` of 2^partition_bits.
  virtual Status OnState(PartitionId, std::uint32_t /*partition_bits*/, const FragmentState&) { return {}; }
};

class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  // Begins this shard's part of a checkpoint in `directory`, which is created if it does not exist. Returns at once.
  // The tables of `head` have no rows yet. If `head` has a base, the part also gets the shard's share of the base's
  // files; it fails with kNotFound if the base is incomplete.
  // Each part is reported once, when nothing more will be written into the directory. The report of a durable part
  // contains its files with sizes and checksums, the rows and the state hash. The report of a failed part, which may
  // come before Finish, contains the error's code and a message with the path. One part at a time.
  virtual void Begin(Snapshot head, std::string directory) = 0;
  // Queues rows, which must come in order of table and partition.
  virtual void Put(CutRows chunk) = 0;
  // Completes the part. `whole_hash`: of all rows at the cut, if the shard knows it and the part does not contain all.
  virtual void Finish(std::optional<std::uint64_t> whole_hash) = 0;
  // Cancels the part. Reported as kCancelled, unless the part has failed.
  virtual void Abandon() = 0;
  // Whether the queue accepts more rows. After it returned false, the shard's loop is woken when there is room again.
  virtual bool HasRoom() = 0;

  // Reads the partitions that the sink wants from a checkpoint, which any number of shards may have written. The sink
  // may receive rows of other partitions too, but none from a file with a wrong size or checksum: the error (kCorrupt)
  // names such a file. Blocks.
  virtual Status Load(const std::string& directory, RowSink& sink) = 0;
};

}  // namespace tarn::server
