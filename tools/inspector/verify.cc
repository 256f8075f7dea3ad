#include "tools/inspector/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/position.h"
#include "tools/inspector/source.h"

namespace tarn::inspector {

namespace {

namespace fs = std::filesystem;

Status CheckNothingElse(const Checkpoint& checkpoint) {
  std::set<std::string> expected{kManifestName};
  for (const Generation& generation : checkpoint.manifest().generations)
    for (const CheckpointFile& file : generation.files) expected.insert(file.name);
  std::error_code error;
  for (fs::directory_iterator it(checkpoint.directory, error), end; !error && it != end; it.increment(error))
    if (!expected.contains(it->path().filename().string()))
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{}: does not belong here: {} does not name it", it->path().string(), kManifestName));
  if (error) return Fail(ErrorCode::kIo, fmt::format("{}: cannot be read: {}", checkpoint.directory, error.message()));
  return {};
}

std::uint64_t EntriesOf(const Manifest& manifest) {
  std::uint64_t entries = 0;
  for (const Generation& generation : manifest.generations)
    for (const CheckpointFile& file : generation.files) entries += file.rows + file.removed;
  return entries;
}

struct TableCount {
  std::uint64_t rows = 0, seen = 0, hash = 0;
};

Expected<TableCount> ReadTable(const Checkpoint& checkpoint, const TableSpec& table, ProgressLine* progress) {
  TableCount count;
  const std::uint64_t salt = checkpoint.SaltOf(table);
  const Positioner position(table, salt);
  const std::uint32_t bits = checkpoint.manifest().partition_bits;
  auto take = [&](const server::StoredRow& row) -> Status {
    if ((table.kind == TableKind::kDense && row.key >= table.rows) ||
        PartitionOf(position(row.key), bits) != row.partition)
      return Fail(ErrorCode::kCorrupt, fmt::format("{}: table '{}': key {} lies in partition {}, where it does not "
                                                   "belong",
                                                   checkpoint.directory, table.name, row.key, row.partition.value));
    ++count.rows;
    count.hash += server::RowHash(salt, row.key, row.words);
    progress->Add(1);
    return {};
  };
  TARN_RETURN_IF_ERROR(ForEachRow(checkpoint.rows.get(), table, take));
  for (const server::PartitionRun run : PartitionRuns(checkpoint.manifest()))
    TARN_RETURN_IF_ERROR(checkpoint.rows->ReadSeen(table, run, [&](std::span<const server::Seen> seen) -> Status {
      count.seen += seen.size();
      for (const server::Seen& one : seen) count.hash += server::SeenHash(salt, one);
      return {};
    }));
  return count;
}

Status CheckCounts(const Checkpoint& checkpoint, const TableSpec& table, const TableCount& count) {
  const auto& tables = checkpoint.manifest().generations.back().tables;
  const auto expected = std::ranges::find(tables, table.id, &CheckpointTable::table);
  if (expected == tables.end()) return {};  // version 1
  if (expected->state_rows == count.rows && expected->seen == count.seen) return {};
  return Fail(ErrorCode::kCorrupt,
              fmt::format("{}/{}: table '{}' is said to have {} rows and {} waiting keys, the files have {} and {}",
                          checkpoint.directory, kManifestName, table.name, expected->state_rows, expected->seen,
                          count.rows, count.seen));
}

}  // namespace

Expected<std::string> VerifyCheckpoint(const std::string& path) {
  const auto checkpoint = OpenCheckpoint(path);
  if (!checkpoint) return std::unexpected(checkpoint.error());
  const Manifest& manifest = checkpoint->manifest();
  TARN_RETURN_IF_ERROR(CheckNothingElse(*checkpoint));
  TARN_RETURN_IF_ERROR(VerifyAllFiles(*checkpoint, "verifying bytes"));
  ProgressLine progress("verifying rows", EntriesOf(manifest));
  std::uint64_t rows = 0, bytes = 0, files = 0, hash = 0;
  for (const TableSpec& table : manifest.tables) {
    const auto count = ReadTable(*checkpoint, table, &progress);
    if (!count) return std::unexpected(count.error());
    TARN_RETURN_IF_ERROR(CheckCounts(*checkpoint, table, *count));
    rows += count->rows;
    hash += count->hash;
  }
  if (manifest.state_hash && *manifest.state_hash != hash)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}/{}: the state hash is {:016x}, the rows have {:016x}",
                                                 checkpoint->directory, kManifestName, *manifest.state_hash, hash));
  for (const Generation& generation : manifest.generations)
    bytes += generation.bytes(), files += generation.files.size();
  return fmt::format("{}: whole and undamaged: {} rows, {} in {} files, state hash {:016x}{}\n", checkpoint->directory,
                     Count(rows), Bytes(bytes), files, hash, manifest.state_hash ? "" : " (not recorded at the cut)");
}

}  // namespace tarn::inspector
