#include "server/memory_checkpoint_store.h"

#include <fmt/format.h>

namespace tarn::server {

void MemoryCheckpointFiles::Put(const std::string& directory, Snapshot snapshot) {
  const ShardId shard = snapshot.shard;
  directories_[directory].insert_or_assign(shard, std::move(snapshot));
}

const std::map<ShardId, Snapshot>* MemoryCheckpointFiles::Find(const std::string& directory) const {
  const auto it = directories_.find(directory);
  return it == directories_.end() ? nullptr : &it->second;
}

void MemoryCheckpointStore::Write(Snapshot snapshot, std::string directory) {
  CheckpointPart part = PartOf(snapshot);
  if (const Error& error = files_->write_error(); error.code != ErrorCode::kOk) {
    part.code = error.code;
    part.message = error.message;
  } else {
    part.files.push_back({fmt::format("shard-{}.sst", shard_.value), ByteCount(snapshot.tables),
                          static_cast<std::uint32_t>(part.state_hash), RowCount(snapshot.tables)});
    files_->Put(directory, std::move(snapshot));
  }
  written_(std::move(part));
}

Status MemoryCheckpointStore::Load(const std::string& directory, RowSink& sink) {
  const auto* shards = files_->Find(directory);
  if (shards == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("{}: no such checkpoint", directory));
  for (const auto& [shard, snapshot] : *shards) {
    for (const TableRows& table : snapshot.tables) {
      TARN_RETURN_IF_ERROR(sink.OnTable(table.spec));
      for (const PartitionRows& partition : table.partitions)
        if (sink.Wants(partition.partition, snapshot.partition_bits))
          TARN_RETURN_IF_ERROR(sink.OnRows(partition.keys, partition.rows));
    }
  }
  return {};
}

}  // namespace tarn::server
