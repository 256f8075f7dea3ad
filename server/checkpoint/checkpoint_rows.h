// Reads the rows of a checkpoint on disk, merged over its generations, one at a time and in order. Used by restores,
// tools and exports. Keeps only a piece of each file in memory. Blocks; one thread at a time.
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

// A range of partitions, both ends included.
struct PartitionRun {
  PartitionId first, last;
};

struct StoredRow {
  PartitionId partition;
  Key key = 0;
  std::span<const std::uint32_t> words;  // its record, valid until the next call; empty: the key was removed
  std::size_t generation = 0;            // index of the generation that contains it
};

class CheckpointRows {
 public:
  virtual ~CheckpointRows() = default;
  virtual const Manifest& manifest() const = 0;
  // Moves to the first row of the table in these partitions; in the first partition, to the first key that is at least
  // `from`. `table` must outlive the calls of Next.
  virtual Status Seek(const TableSpec& table, PartitionRun run, Key from = 0) = 0;
  // Reads the next row, in order of partition and key, each key once. False: there is none. Removed keys are returned
  // only with first_generation > 0. The error (kCorrupt, kIo) names the file, here and below.
  virtual Expected<bool> Next(StoredRow* row) = 0;
  // Passes the keys of the table in these partitions that wait for admission to `take`, in batches. Returns the first
  // error of `take`.
  virtual Status ReadSeen(const TableSpec& table, PartitionRun run,
                          const std::function<Status(std::span<const Seen>)>& take) = 0;
  // Passes the states of all tables in these partitions to `take`, in order of file, partition and table. Ends the
  // iteration of Next.
  virtual Status ReadStates(PartitionRun run,
                            const std::function<Status(TableId, PartitionId, const FragmentState&)>& take) = 0;
};

// An entry of a file: the row of a key, the removal of a key, or, in a file of keys seen, the number of pushes of a key
// that waits for admission.
struct StoredEntry {
  const CheckpointFile* file = nullptr;  // of the manifest
  std::size_t generation = 0;
  PartitionId partition;
  Key key = 0;
  std::span<const std::uint32_t> words;  // the record or the count, valid during the call; empty: removed
};

struct CheckpointRowsOptions {
  // Above 0: reads only this generation and later ones, with the keys that they removed; that is, what changed since
  // the generation before.
  std::size_t first_generation = 0;
  // Called for every entry that Next and ReadSeen pass, also for those that a later generation replaces. The entries of
  // one key come newest first, and before Next returns the key.
  std::function<Status(const StoredEntry&)> on_entry;
};

// Reads the manifest. Files are opened when they are needed, and are not verified (VerifyFiles).
Expected<std::unique_ptr<CheckpointRows>> OpenCheckpointRows(const std::string& directory,
                                                             CheckpointRowsOptions options = {});

inline PartitionRun AllPartitions(const Manifest& manifest) {
  return {PartitionId(0), PartitionId((1u << manifest.partition_bits) - 1)};
}

// Whether the file may contain entries of these partitions, by its range in the manifest. True if the range is unknown.
inline bool MayHold(const CheckpointFile& file, PartitionRun run) {
  return file.last < file.first || (file.first <= run.last && run.first <= file.last);
}

// Reads each file for which wanted(file) is true, and compares its size and CRC-32C with the manifest. kCorrupt,
// kNotFound or kIo, naming the file and, if its checksum is wrong, the checkpoints in the same folder that have the
// file too, as a hard link. Calls progress(bytes), if not null, after each piece with the number of bytes read.
Status VerifyFiles(const std::string& directory, const Manifest& manifest,
                   const std::function<bool(const CheckpointFile&)>& wanted,
                   const std::function<void(std::uint64_t bytes)>& progress);

}  // namespace tarn::server
