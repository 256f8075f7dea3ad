#include "server/memory_checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::server {

void MemoryCheckpointFiles::Put(const std::string& directory, Snapshot snapshot) {
  const ShardId shard = snapshot.shard;
  directories_[directory].insert_or_assign(shard, std::move(snapshot));
}

const std::map<ShardId, Snapshot>* MemoryCheckpointFiles::Find(const std::string& directory) const {
  const auto it = directories_.find(directory);
  return it == directories_.end() ? nullptr : &it->second;
}

void MemoryCheckpointStore::Begin(Snapshot head, std::string directory) {
  open_ = std::move(head);
  directory_ = std::move(directory);
}

void MemoryCheckpointStore::Put(CutRows chunk) {
  TARN_CHECK(open_.has_value(), "no part begun");
  const auto table = std::ranges::find(open_->tables, chunk.table, [](const TableRows& rows) { return rows.spec.id; });
  TARN_CHECK(table != open_->tables.end(), "rows of a table that is not in the head");
  std::vector<PartitionRows>& partitions = table->partitions;
  if (partitions.empty() || partitions.back().partition != chunk.rows.partition) {
    partitions.push_back(std::move(chunk.rows));
    return;
  }
  PartitionRows& rows = partitions.back();
  rows.keys.insert(rows.keys.end(), chunk.rows.keys.begin(), chunk.rows.keys.end());
  rows.rows.insert(rows.rows.end(), chunk.rows.rows.begin(), chunk.rows.rows.end());
  rows.removed.insert(rows.removed.end(), chunk.rows.removed.begin(), chunk.rows.removed.end());
  rows.seen.insert(rows.seen.end(), chunk.rows.seen.begin(), chunk.rows.seen.end());
}

void MemoryCheckpointStore::Finish() {
  TARN_CHECK(open_.has_value(), "no part begun");
  Snapshot snapshot = *std::exchange(open_, std::nullopt);
  CheckpointPart part{.id = snapshot.id, .max_clock = snapshot.max_clock, .state_hash = StateHash(snapshot.tables)};
  if (const Error& error = files_->write_error(); error.code != ErrorCode::kOk) {
    part.code = error.code;
    part.message = error.message;
  } else {
    part.files.push_back({fmt::format("shard-{}.sst", shard_.value), ByteCount(snapshot.tables),
                          static_cast<std::uint32_t>(part.state_hash), RowCount(snapshot.tables)});
    files_->Put(directory_, std::move(snapshot));
  }
  written_(std::move(part));
}

void MemoryCheckpointStore::Abandon() {
  TARN_CHECK(open_.has_value(), "no part begun");
  const Snapshot snapshot = *std::exchange(open_, std::nullopt);
  written_({.id = snapshot.id, .code = ErrorCode::kCancelled, .message = "given up"});
}

Status MemoryCheckpointStore::Load(const std::string& directory, RowSink& sink) {
  const auto* shards = files_->Find(directory);
  if (shards == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("{}: no such checkpoint", directory));
  for (const auto& [shard, snapshot] : *shards) {
    for (const TableRows& table : snapshot.tables) {
      TARN_RETURN_IF_ERROR(sink.OnTable(table.spec));
      for (const PartitionRows& partition : table.partitions) {
        if (!sink.Wants(partition.partition, snapshot.partition_bits)) continue;
        TARN_RETURN_IF_ERROR(sink.OnRemoved(partition.removed));
        TARN_RETURN_IF_ERROR(sink.OnRows(partition.keys, partition.rows));
        TARN_RETURN_IF_ERROR(sink.OnSeen(partition.seen));
      }
    }
  }
  return {};
}

}  // namespace tarn::server
