// MANIFEST: the file that makes a directory a checkpoint (rules K3-K5). It is written last and atomically; a directory
// without it is not a checkpoint.
//
// The file: a body, a FlatBuffer (schemas/manifest.fbs), in the envelope of core/codec/sealed.h with the magic
// "TARNCKPT".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/quality.h"
#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn {

// Version 1 had one list of files; it is read as one generation. From version 3 on the checksum covers the version too.
// From version 4 on the options of an update rule have names (core/codec/old_tables.h).
inline constexpr std::uint32_t kManifestVersion = 4;
inline constexpr const char* kManifestName = "MANIFEST";

// The position of training in its data.
struct DataState {
  std::uint64_t rows[3] = {0, 0, 0};  // train, validation, test set; all 0: not known yet
  std::uint64_t split_rows = 0;       // of the train set
  std::uint32_t epoch = 0;
  Clock base, ceiling;                 // of the epoch (rule D4)
  std::vector<std::uint64_t> trained;  // rows, by split of the epoch; empty: none
  Quality quality;                     // progressive, of leases of this epoch that are done
};

// The results of a Quality, without its buckets.
struct Scores {
  std::uint64_t rows = 0;
  double log_loss = 0;
  std::optional<double> auc;  // absent: no rows with logits (Quality::has_logits)
  double accuracy = 0;
  double normalized_entropy = 1;  // no meaning without auc
  friend bool operator==(const Scores&, const Scores&) = default;
};

// The number of an epoch for users: code and files of a run count from 0, logs and reports from 1.
constexpr std::uint32_t EpochNumber(std::uint32_t epoch) { return epoch + 1; }

struct EpochResult {
  std::uint32_t epoch = 0;  // 0, 1, ...
  Scores train;             // progressive: of the predictions before each update
  std::optional<Scores> valid, test;
  bool best = false;  // when it was scored, it was the best epoch so far
  friend bool operator==(const EpochResult&, const EpochResult&) = default;
};

// The files written by one checkpoint. The first generation of a manifest holds all rows of its cut. Each later one (an
// increment) holds the rows changed since the previous one, and the removed keys. If several generations hold a key,
// the latest counts.
struct Generation {
  CheckpointId id;  // of the checkpoint that wrote it
  Clock clock;      // of its cut
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTable> tables;  // in order of id; none: not known (version 1)
  std::uint64_t state_hash = 0;         // of the rows in its files
  std::uint64_t bytes() const;          // of its files
};

// The state of a worker at the cut (core/codec/worker_blob.h). After a resume, the worker of the same rank loads it.
struct WorkerBlob {
  WorkerRank rank;
  Incarnation incarnation;
  CheckpointFile file;
  bool program_state = false;  // the file contains state of the worker's program
};

struct Manifest {
  std::string job_text;           // the resolved job (ToToml)
  std::uint64_t fingerprint = 0;  // of that job
  CheckpointId id;
  std::uint32_t partition_bits = 0;
  std::vector<TableSpec> tables;            // in order of id
  std::vector<Generation> generations;      // oldest first; names of files are relative to the directory
  std::optional<std::uint64_t> state_hash;  // of all rows, if known
  Incarnation next_incarnation;             // above all incarnations that were issued
  Clock resume_clock;
  DataState data;
  std::vector<EpochResult> epochs;     // finished ones, with their scores
  std::uint64_t samples = 0;           // trained rows that the checkpoint covers
  std::uint64_t batches_repeated = 0;  // batches that may have been trained twice, up to the cut
  std::uint64_t batches_behind = 0;    // trained after the positions were recorded; a resume repeats them (K2)
  std::uint64_t workers_died = 0;
  double seconds = 0, train_seconds = 0;  // since the first grant; the part of them in train phases
  std::string best_checkpoint;            // directory; empty: none yet
  bool best_lost = false;                 // the best epoch is a later one, whose checkpoint could not be written
  std::vector<WorkerBlob> blobs;          // in order of rank, at most one per rank; only of this checkpoint
};

// Replaces directory/MANIFEST atomically, and makes it and the directory's names durable. Before that, checks that
// every file that the manifest names exists with its size (kNotFound, kCorrupt). kTooLarge: the manifest exceeds
// limits::kManifestFilesMax or kManifestBytesMax, so it could not be read again. kIo, naming the path.
Status WriteManifest(const std::string& directory, const Manifest& manifest);

// Reads directory/MANIFEST and verifies it: checksum, version and fields; that its id is <number> if the directory is
// named ckpt-<number>; and that every file that it names exists with its size. The error names the file and what was
// expected: kNotFound, kCorrupt, kUnsupported, kTooLarge, kIo.
Expected<Manifest> ReadManifest(const std::string& directory);

// Converts to and from the bytes of the file, without file access. `origin` names the file in errors: kCorrupt,
// kUnsupported.
std::string EncodeManifest(const Manifest& manifest);
Expected<Manifest> DecodeManifest(std::string_view bytes, const std::string& origin);

// A hash of the number of partitions, and of the names, sizes and checksums of the files of each generation (not of the
// blobs of workers). Equal hashes mean equal rows.
std::uint64_t FilesHash(const Manifest& manifest);

// The number of a directory named ckpt-<number> (1 to limits::kCheckpointIdMax, without leading zeros); nullopt for
// another name.
std::optional<CheckpointId> CheckpointIdOf(const std::string& directory);

struct CheckpointDirectory {
  CheckpointId id;
  std::string path;
  bool has_manifest = false;  // false: incomplete, or being written
};

// The directories ckpt-<number> below RUN_DIR/checkpoints, in order of number. kNotFound if that cannot be read.
Expected<std::vector<CheckpointDirectory>> ListCheckpoints(const std::string& run_dir);

// The path of the newest of these that has a MANIFEST. kNotFound if none has one, or as for ListCheckpoints.
Expected<std::string> FindNewestCheckpoint(const std::string& run_dir);

}  // namespace tarn
