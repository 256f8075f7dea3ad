#include "server/checkpoint/rocksdb_checkpoint_reader.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/row_layout.h"
#include "server/checkpoint/checkpoint_rows.h"

namespace tarn::server {

namespace {

constexpr std::size_t kRowsPerBatch = 1024;

std::vector<PartitionRun> WantedRuns(const RowSink& sink, std::uint32_t partition_bits) {
  std::vector<PartitionRun> runs;
  for (std::uint32_t p = 0; p < 1u << partition_bits; ++p) {
    const PartitionId partition(p);
    if (!sink.Wants(partition, partition_bits)) continue;
    if (!runs.empty() && runs.back().last.value + 1 == p) {
      runs.back().last = partition;
    } else {
      runs.push_back({partition, partition});
    }
  }
  return runs;
}

// Collects rows and passes them to the sink in batches.
class Batch {
 public:
  explicit Batch(RowSink* sink) : sink_(*sink) {}
  Status Add(const StoredRow& row) {
    keys_.push_back(row.key);
    words_.insert(words_.end(), row.words.begin(), row.words.end());
    return keys_.size() < kRowsPerBatch ? Status{} : Flush();
  }
  Status Flush() {
    if (keys_.empty()) return {};
    Status status = sink_.OnRows(keys_, words_);
    keys_.clear();
    words_.clear();
    return status;
  }

 private:
  RowSink& sink_;
  std::vector<Key> keys_;
  std::vector<std::uint32_t> words_;
};

Status ReadRun(CheckpointRows* rows, const TableSpec& table, PartitionRun run, RowSink& sink) {
  TARN_RETURN_IF_ERROR(rows->Seek(table, run));
  Batch batch(&sink);
  StoredRow row;
  for (;;) {
    const auto more = rows->Next(&row);
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    TARN_RETURN_IF_ERROR(batch.Add(row));
  }
  TARN_RETURN_IF_ERROR(batch.Flush());
  return rows->ReadSeen(table, run, [&](std::span<const Seen> seen) { return sink.OnSeen(seen); });
}

// A table without a state is skipped: nothing was applied to it before the cut.
Status ReadStates(CheckpointRows* rows, std::span<const PartitionRun> runs, RowSink& sink) {
  const Manifest& manifest = rows->manifest();
  std::map<TableId, std::vector<std::pair<PartitionId, FragmentState>>> states;
  for (const PartitionRun run : runs)
    TARN_RETURN_IF_ERROR(rows->ReadStates(run, [&](TableId table, PartitionId partition, const FragmentState& state) {
      states[table].emplace_back(partition, state);
      return Status();
    }));
  for (const TableSpec& table : manifest.tables) {
    if (!states.contains(table.id)) continue;
    TARN_RETURN_IF_ERROR(sink.OnTable(table));
    for (const auto& [partition, state] : states[table.id])
      TARN_RETURN_IF_ERROR(sink.OnState(partition, manifest.partition_bits, state));
  }
  return {};
}

}  // namespace

Status ReadCheckpoint(const std::string& directory, RowSink& sink) {
  const auto rows = OpenCheckpointRows(directory);
  if (!rows) return std::unexpected(rows.error());
  const Manifest& manifest = (*rows)->manifest();
  for (const TableSpec& table : manifest.tables) TARN_RETURN_IF_ERROR(sink.OnTable(table));
  const std::vector<PartitionRun> runs = WantedRuns(sink, manifest.partition_bits);
  auto wanted = [&](const CheckpointFile& file) {
    return std::ranges::any_of(runs, [&](PartitionRun run) { return MayHold(file, run); });
  };
  TARN_RETURN_IF_ERROR(VerifyFiles(directory, manifest, wanted, nullptr));
  for (const TableSpec& table : manifest.tables) {
    TARN_RETURN_IF_ERROR(sink.OnTable(table));
    for (const PartitionRun run : runs) TARN_RETURN_IF_ERROR(ReadRun(rows->get(), table, run, sink));
  }
  return ReadStates(rows->get(), runs, sink);
}

}  // namespace tarn::server
