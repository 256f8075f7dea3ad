// MANIFEST: the file that makes a directory a checkpoint (rules K3-K5). It is written last, at once and whole; a
// directory without it is not a checkpoint.
//
// The file: 8 bytes "TARNCKPT", then little-endian: format version (32 bits), CRC-32C of all that follows (32 bits),
// bytes of the body (64 bits), and the body, a FlatBuffer (schemas/manifest.fbs).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/quality.h"
#include "core/table_spec.h"
#include "core/types.h"

namespace tarn {

inline constexpr std::uint32_t kManifestVersion = 1;
inline constexpr const char* kManifestName = "MANIFEST";

// Where the training stands in its data.
struct DataState {
  std::uint64_t rows[3] = {0, 0, 0};  // train, validation, test set; all 0: not known yet
  std::uint64_t split_rows = 0;       // of the train set
  std::uint32_t epoch = 0;
  Clock base, ceiling;                 // of the epoch
  std::vector<std::uint64_t> trained;  // rows, by split of the epoch; empty: none
  Quality quality;                     // progressive, of leases of this epoch that are done
};

// The figures of a Quality, without its buckets.
struct Scores {
  std::uint64_t rows = 0;
  double log_loss = 0;
  double auc = 0.5;
  double accuracy = 0;
  double normalized_entropy = 1;
  friend bool operator==(const Scores&, const Scores&) = default;
};

struct EpochResult {
  std::uint32_t epoch = 0;
  Scores train;  // progressive: of the predictions before each update
  std::optional<Scores> valid, test;
  bool best = false;  // when it was scored
  friend bool operator==(const EpochResult&, const EpochResult&) = default;
};

struct Manifest {
  std::string job_text;           // as resolved
  std::uint64_t fingerprint = 0;  // of that job
  CheckpointId id;
  std::uint32_t partition_bits = 0;
  std::vector<TableSpec> tables;      // in order of id
  std::vector<CheckpointFile> files;  // names relative to the directory
  std::uint64_t state_hash = 0;
  Incarnation next_incarnation;  // above all that were given out
  Clock resume_clock;
  DataState data;
  std::vector<EpochResult> epochs;     // finished ones, with their scores
  std::uint64_t samples = 0;           // trained rows that the checkpoint covers
  std::uint64_t batches_repeated = 0;  // up to the cut
  std::uint64_t batches_behind = 0;    // K2: trained after the positions were noted, and repeated by a resume
  std::uint64_t workers_died = 0;
  double seconds = 0, train_seconds = 0;
  std::string best_checkpoint;  // directory; empty: none yet
};

// Replaces directory/MANIFEST so that a reader sees the old one or the new one, and makes it and the directory's
// names durable. kIo, naming the path.
Status WriteManifest(const std::string& directory, const Manifest& manifest);

// Reads and verifies it: its checksum, its version, its fields, and that every file it names is there with its size.
// The error names the file and what was expected: kNotFound, kCorrupt, kUnsupported, kIo.
Expected<Manifest> ReadManifest(const std::string& directory);

// The bytes of the file and back, without touching files; `origin` names it in errors.
std::string EncodeManifest(const Manifest& manifest);
Expected<Manifest> DecodeManifest(std::string_view bytes, const std::string& origin);

// The directory below RUN_DIR/checkpoints with the highest number that holds a MANIFEST. kNotFound if none does.
Expected<std::string> FindNewestCheckpoint(const std::string& run_dir);

}  // namespace tarn
