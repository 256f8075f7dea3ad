// Where a shard's checkpoints go and come from. The shard hands over a snapshot at the cut; the store writes it beside
// the shard's work and reports back, on the shard's thread, through Shard::OnCheckpointWritten. An interface, so that
// a simulated fleet can keep its checkpoints in memory.
#pragma once

#include <span>
#include <string>

#include "core/error.h"
#include "core/message.h"
#include "core/table_spec.h"
#include "server/snapshot.h"

namespace tarn::server {

// Takes the rows of a checkpoint as they are read.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // Whether it wants rows of partition `partition` of 2^partition_bits; others may be left unread.
  virtual bool Wants(PartitionId partition, std::uint32_t partition_bits) const = 0;
  // The table whose rows follow. An error ends the loading with it: a table of another shape, or an unknown one.
  virtual Status OnTable(const TableSpec& spec) = 0;
  // Rows of that table: keys.size() x (dim + slots) floats. Any batch size; each key of a checkpoint once.
  virtual Status OnRows(std::span<const Key> keys, std::span<const float> rows) = 0;
};

class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;

  // Begins to write this shard's part of a checkpoint into `directory` and returns at once. The part that is reported
  // when it is durable names its files, their sizes and checksums, the rows and the state hash; when it failed, code
  // and message say why, with the path.
  virtual void Write(Snapshot snapshot, std::string directory) = 0;

  // Reads from a checkpoint of any number of shards what the sink wants; it may get rows of other partitions too.
  // Nothing that fails its size or checksum is handed out; the error (kCorrupt) then names the file. Blocks.
  virtual Status Load(const std::string& directory, RowSink& sink) = 0;
};

// What a store reports of a snapshot: all but files and errors.
CheckpointPart PartOf(const Snapshot& snapshot);

}  // namespace tarn::server
