// MANIFEST: the file that makes a directory a checkpoint (rules K3-K5). It is written last, at once and whole; a
// directory without it is not a checkpoint.
//
// The file: 8 bytes "TARNCKPT", then little-endian: format version (32 bits), CRC-32C of all that follows (32 bits),
// bytes of the body (64 bits), and the body, a FlatBuffer (schemas/manifest.fbs).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/table_spec.h"
#include "scheduler/leases.h"
#include "scheduler/progress.h"

namespace tarn::scheduler {

inline constexpr std::uint32_t kManifestVersion = 1;
inline constexpr const char* kManifestName = "MANIFEST";

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

}  // namespace tarn::scheduler
