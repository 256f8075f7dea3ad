// The rows of a checkpoint on disk as its generations together have them, in order, one at a time: what restores,
// tools and exports read. Holds a piece of each file and no more. Blocks; one thread at a time.
//
//   auto rows = OpenCheckpointRows(directory);
//   if (auto status = VerifyFiles(directory, (*rows)->manifest(), wanted, nullptr); !status) ...;
//   (*rows)->Seek(spec, {PartitionId(0), PartitionId(63)});
//   StoredRow row;
//   for (;;) { auto more = (*rows)->Next(&row); if (!more || !*more) break; ... }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "server/store/snapshot.h"

namespace tarn::server {

// Neighbours, both ends included.
struct PartitionRun {
  PartitionId first, last;
};

struct StoredRow {
  PartitionId partition;
  Key key = 0;
  std::span<const std::uint32_t> words;  // its record, until the next call; none: the key was removed
  std::size_t generation = 0;            // the index of the one that it is from
};

class CheckpointRows {
 public:
  virtual ~CheckpointRows() = default;
  virtual const Manifest& manifest() const = 0;
  // Goes to the first row of the table in these partitions whose key, in the first of them, is at least `from`.
  virtual Status Seek(const TableSpec& table, PartitionRun run, Key from = 0) = 0;
  // The next row, in order of partition and key, each key once; false: there is none. The error (kCorrupt, kIo) names
  // the file.
  virtual Expected<bool> Next(StoredRow* row) = 0;
  // Keys of the table in these partitions that wait for their admission, some at a time.
  virtual Status ReadSeen(const TableSpec& table, PartitionRun run,
                          const std::function<Status(std::span<const Seen>)>& take) = 0;
  // The states of all tables in these partitions, in order of file, partition and table.
  virtual Status ReadStates(PartitionRun run,
                            const std::function<Status(TableId, PartitionId, const FragmentState&)>& take) = 0;
};

// What a file holds of a key: a row, that it was removed, or, in a file of them, that it waits for its admission.
struct StoredEntry {
  const CheckpointFile* file = nullptr;  // of the manifest
  std::size_t generation = 0;
  PartitionId partition;
  Key key = 0;
  std::span<const std::uint32_t> words;  // the record or the count, during the call; none: removed
};

struct CheckpointRowsOptions {
  // Above 0: only these generations and later ones, and the keys that they removed: what changed since the one before.
  std::size_t first_generation = 0;
  // Told of every entry that Next and ReadSeen pass, also of those that a later generation replaces: of one key the
  // newest first, before it is handed out.
  std::function<Status(const StoredEntry&)> on_entry;
};

// Reads the manifest; the files are opened as they are needed, and are not verified here.
Expected<std::unique_ptr<CheckpointRows>> OpenCheckpointRows(const std::string& directory,
                                                             CheckpointRowsOptions options = {});

inline PartitionRun AllPartitions(const Manifest& manifest) {
  return {PartitionId(0), PartitionId((1u << manifest.partition_bits) - 1)};
}

// Whether the file may hold something of these partitions.
inline bool MayHold(const CheckpointFile& file, PartitionRun run) {
  return file.last < file.first || (file.first <= run.last && run.first <= file.last);
}

// Reads each file that is wanted to its end and compares size and CRC-32C. kCorrupt (of a damaged file
// also: the checkpoints beside this one that have it too, by a hard link), kNotFound or kIo, naming the file.
// `progress` (null: none) is told the bytes read since it was told last.
Status VerifyFiles(const std::string& directory, const Manifest& manifest,
                   const std::function<bool(const CheckpointFile&)>& wanted,
                   const std::function<void(std::uint64_t bytes)>& progress);

}  // namespace tarn::server
