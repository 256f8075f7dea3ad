#include "sim/disks/memory_checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::server {

void MemoryCheckpointFiles::Put(const std::string& directory, Snapshot snapshot) {
  const CheckpointId id = snapshot.id;
  const ShardId shard = snapshot.shard;
  directories_[directory][id][shard] = std::make_shared<const Snapshot>(std::move(snapshot));
}

bool MemoryCheckpointFiles::LinkShare(const std::string& base_directory, const std::string& directory, ShardId shard,
                                      std::uint32_t shards) {
  const Generations* base = Find(base_directory);
  if (base == nullptr) return false;
  std::uint32_t index = 0;
  for (const auto& [id, parts] : *base)
    for (const auto& [of, part] : parts)
      if (index++ % shards == shard.value % shards) directories_[directory][id][of] = part;
  return true;
}

void MemoryCheckpointFiles::RemovePart(const std::string& directory, CheckpointId id, ShardId shard) {
  const auto generations = directories_.find(directory);
  if (generations == directories_.end()) return;
  const auto parts = generations->second.find(id);
  if (parts == generations->second.end()) return;
  parts->second.erase(shard);
  if (parts->second.empty()) generations->second.erase(parts);
}

const MemoryCheckpointFiles::Generations* MemoryCheckpointFiles::Find(const std::string& directory) const {
  const auto it = directories_.find(directory);
  return it == directories_.end() ? nullptr : &it->second;
}

void MemoryCheckpointStore::Begin(Snapshot head, std::string directory) {
  open_ = std::move(head);
  directory_ = std::move(directory);
  base_is_gone_ =
      open_->base.value != 0 && !files_->LinkShare(open_->base_directory, directory_, open_->shard, open_->shards);
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
  if (chunk.rows.state) rows.state = std::move(chunk.rows.state);
}

void MemoryCheckpointStore::Finish(std::optional<std::uint64_t> whole_hash) {
  TARN_CHECK(open_.has_value(), "no part begun");
  Snapshot snapshot = *std::exchange(open_, std::nullopt);
  CheckpointPart part{.id = snapshot.id, .max_clock = snapshot.max_clock, .state_hash = StateHash(snapshot.tables)};
  part.whole_hash = snapshot.base.value == 0 ? part.state_hash : whole_hash;
  if (const Error& error = files_->write_error(); error.code != ErrorCode::kOk) {
    part.code = error.code;
    part.message = error.message;
  } else if (base_is_gone_) {
    part.code = ErrorCode::kNotFound;
    part.message = fmt::format("{}: no such checkpoint", snapshot.base_directory);
  } else {
    part.files.push_back({fmt::format("{}-shard-{}", snapshot.id.value, shard_.value), ByteCount(snapshot.tables),
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
  const auto* generations = files_->Find(directory);
  if (generations == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("{}: no such checkpoint", directory));
  for (const auto& [id, parts] : *generations)
    for (const auto& [shard, snapshot] : parts)
      for (const TableRows& table : snapshot->tables) {
        TARN_RETURN_IF_ERROR(sink.OnTable(table.spec));
        for (const PartitionRows& partition : table.partitions) {
          if (!sink.Wants(partition.partition, snapshot->partition_bits)) continue;
          TARN_RETURN_IF_ERROR(sink.OnRemoved(partition.removed));
          TARN_RETURN_IF_ERROR(sink.OnRows(partition.keys, partition.rows));
          // Each checkpoint has the full list of keys that wait for admission, and all states.
          if (id != generations->rbegin()->first) continue;
          TARN_RETURN_IF_ERROR(sink.OnSeen(partition.seen));
          if (partition.state)
            TARN_RETURN_IF_ERROR(sink.OnState(partition.partition, snapshot->partition_bits, *partition.state));
        }
      }
  return {};
}

}  // namespace tarn::server
