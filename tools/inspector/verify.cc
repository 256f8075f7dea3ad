#include "tools/inspector/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <span>

#include "core/codec/worker_blob.h"
#include "core/file.h"
#include "core/position.h"
#include "server/checkpoint/file_sum.h"
#include "tools/inspector/counts.h"
#include "tools/inspector/source.h"

namespace tarn::inspector {

namespace {

namespace fs = std::filesystem;

Status CheckNothingElse(const Checkpoint& checkpoint) {
  std::set<std::string> expected{kManifestName};
  for (const Generation& generation : checkpoint.manifest().generations)
    for (const CheckpointFile& file : generation.files) expected.insert(file.name);
  for (const WorkerBlob& blob : checkpoint.manifest().blobs) expected.insert(blob.file.name);
  std::error_code error;
  for (fs::directory_iterator it(checkpoint.directory, error), end; !error && it != end; it.increment(error))
    // A worker that died before the checkpoint was complete may have left a blob that the manifest does not name.
    if (!expected.contains(it->path().filename().string()) && it->path().extension() != ".blob")
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{}: unexpected file: {} does not name it", it->path().string(), kManifestName));
  if (error) return Fail(ErrorCode::kIo, fmt::format("{}: cannot be read: {}", checkpoint.directory, error.message()));
  return {};
}

// Verifies every byte and every chunk of the workers' blobs.
Status VerifyBlobs(const Checkpoint& checkpoint) {
  for (const WorkerBlob& blob : checkpoint.manifest().blobs) {
    const std::string path = checkpoint.directory + "/" + blob.file.name;
    TARN_RETURN_IF_ERROR(server::VerifyFile(path, blob.file));
    const auto bytes = ReadFile(path, blob.file.bytes);
    if (!bytes) return std::unexpected(bytes.error());
    TARN_RETURN_IF_ERROR(ReadBlob(std::as_bytes(std::span(*bytes)), {path, checkpoint.manifest().id, blob.rank},
                                  [](const BlobChunk&) { return Status{}; }));
  }
  return {};
}

std::uint64_t EntriesOf(const Manifest& manifest) {
  std::uint64_t entries = 0;
  for (const Generation& generation : manifest.generations)
    for (const CheckpointFile& file : generation.files) entries += file.rows + file.removed;
  return entries;
}

// Reads the whole table; the checkpoint's on_entry counts its entries.
Status ReadTable(const Checkpoint& checkpoint, const TableSpec& table, ProgressLine* progress) {
  const Positioner position(table, checkpoint.SaltOf(table));
  const std::uint32_t bits = checkpoint.manifest().partition_bits;
  auto take = [&](const server::StoredRow& row) -> Status {
    if ((table.kind == TableKind::kDense && row.key >= table.rows) ||
        PartitionOf(position(row.key), bits) != row.partition)
      return Fail(ErrorCode::kCorrupt, fmt::format("{}: table '{}': key {} is in partition {}, where it does not "
                                                   "belong",
                                                   checkpoint.directory, table.name, row.key, row.partition.value));
    progress->Add(1);
    return {};
  };
  TARN_RETURN_IF_ERROR(ForEachRow(checkpoint.rows.get(), table, take));
  for (const server::PartitionRun run : PartitionRuns(checkpoint.manifest()))
    TARN_RETURN_IF_ERROR(checkpoint.rows->ReadSeen(table, run, [](std::span<const server::Seen>) { return Status{}; }));
  return {};
}

}  // namespace

Expected<std::string> VerifyCheckpoint(const std::string& path) {
  std::optional<Counts> counts;
  const auto checkpoint =
      OpenCheckpoint(path, {.on_entry = [&](const server::StoredEntry& entry) { return counts->Add(entry); }});
  if (!checkpoint) return std::unexpected(checkpoint.error());
  const Manifest& manifest = checkpoint->manifest();
  TARN_RETURN_IF_ERROR(CheckNothingElse(*checkpoint));
  TARN_RETURN_IF_ERROR(VerifyAllFiles(*checkpoint, "verifying bytes"));
  TARN_RETURN_IF_ERROR(VerifyBlobs(*checkpoint));
  ProgressLine progress("verifying rows", EntriesOf(manifest));
  counts.emplace(manifest.generations.size());
  for (const TableSpec& table : manifest.tables) {
    counts->BeginTable(table, checkpoint->SaltOf(table));
    TARN_RETURN_IF_ERROR(ReadTable(*checkpoint, table, &progress));
  }
  const auto take = [&](TableId id, PartitionId partition, const server::FragmentState& state) -> Status {
    const auto table = std::ranges::find(manifest.tables, id, &TableSpec::id);
    if (table == manifest.tables.end())
      return Fail(ErrorCode::kCorrupt, fmt::format("{}: a state of table {}, which the checkpoint does not have",
                                                   checkpoint->directory, id.value));
    counts->AddState(checkpoint->SaltOf(*table), partition, state);
    return {};
  };
  for (const server::PartitionRun run : PartitionRuns(manifest))
    TARN_RETURN_IF_ERROR(checkpoint->rows->ReadStates(run, take));
  TARN_RETURN_IF_ERROR(counts->Compare(manifest, checkpoint->directory + "/" + kManifestName));
  std::uint64_t bytes = 0, files = 0;
  for (const Generation& generation : manifest.generations)
    bytes += generation.bytes(), files += generation.files.size();
  for (const WorkerBlob& blob : manifest.blobs) bytes += blob.file.bytes, ++files;
  return fmt::format("{}: complete and undamaged: {} rows, {} in {} files, state hash {:016x}{}\n",
                     checkpoint->directory, Count(counts->rows()), Bytes(bytes), files, counts->hash(),
                     manifest.state_hash ? "" : " (not recorded at the cut)");
}

}  // namespace tarn::inspector
