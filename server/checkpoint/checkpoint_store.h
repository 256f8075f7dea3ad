// Where a shard's checkpoints go and come from. The shard hands over the rows of a cut in chunks; the store writes them
// beside the shard's work and reports back, on the shard's thread, through Shard::OnCheckpointWritten. An interface, so
// that a simulated fleet can keep its checkpoints in memory.
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

// Takes the rows of a checkpoint as they are read.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // Whether it wants rows of partition `partition` of 2^partition_bits; others may be left unread.
  virtual bool Wants(PartitionId partition, std::uint32_t partition_bits) const = 0;
  // The table whose rows follow. An error ends the loading with it: a table of another shape, or an unknown one.
  virtual Status OnTable(const TableSpec& spec) = 0;
  // Records of that table: keys.size() x RowWords. Any batch size; where a key comes twice, the later one counts.
  virtual Status OnRows(std::span<const Key> keys, std::span<const std::uint32_t> rows) = 0;
  // Keys of that table that have no row any more, whatever came before.
  virtual Status OnRemoved(std::span<const Key> keys) = 0;
  // Keys of that table that are counted without a row; each once.
  virtual Status OnSeen(std::span<const Seen> seen) = 0;
  // The state of that table in partition `partition` of 2^partition_bits.
  virtual Status OnState(PartitionId, std::uint32_t /*partition_bits*/, const FragmentState&) { return {}; }
};

class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  // Begins this shard's part of a checkpoint in `directory` and returns at once: the tables of `head` have no rows yet.
  // If it has a base, the shard's share of the base's files is taken over too; kNotFound if that cannot be.
  // Each part is reported once, when nothing more will be written into the directory. When all is durable the report
  // names its files, their sizes and checksums, the rows and the state hash; when it failed, which may be before
  // Finish, code and message say why, with the path. One at a time.
  virtual void Begin(Snapshot head, std::string directory) = 0;
  // More rows, in order of table and partition.
  virtual void Put(CutRows chunk) = 0;
  // Those were all. `whole_hash`: of all rows at the cut, where the shard knows it and the rows put are not all.
  virtual void Finish(std::optional<std::uint64_t> whole_hash) = 0;
  // The part that was begun is not wanted any more. Reported as kCancelled, if it has not failed.
  virtual void Abandon() = 0;
  // Whether it takes more rows now. After a false one, the shard's loop has a turn when it does again.
  virtual bool HasRoom() = 0;

  // Reads from a checkpoint of any number of shards what the sink wants; it may get rows of other partitions too.
  // Nothing that fails its size or checksum is handed out; the error (kCorrupt) then names the file. Blocks.
  virtual Status Load(const std::string& directory, RowSink& sink) = 0;
};

}  // namespace tarn::server
