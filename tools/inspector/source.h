// A checkpoint as tarn-inspect reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/row_layout.h"
#include "core/table/table_spec.h"
#include "server/checkpoint/checkpoint_rows.h"

namespace tarn::inspector {

// The checkpoint that a person means by `path`: itself if it holds a MANIFEST, else the newest whole one of the run in
// it. kNotFound says what was looked for.
Expected<std::string> ResolveCheckpoint(const std::string& path);

// Which checkpoint of a run is meant.
struct CheckpointChoice {
  enum class Which : std::uint8_t {
    kNewest,
    kBest,             // of the epoch with the least validation log-loss
    kBestIfEvaluated,  // that one where an epoch was validated, else the newest
    kNumber,
  };
  Which which = Which::kNewest;
  std::uint64_t number = 0;
};
struct ChosenCheckpoint {
  std::string directory;
  std::string note;  // "checkpoint 3 is the best, of epoch 2; the newest is 7"; empty: it is the newest
};
// `path`: a checkpoint, which is chosen itself unless it is asked for another, or a run's folder. kNotFound: no such
// one is there. kInvalidArgument: a checkpoint and a choice.
Expected<ChosenCheckpoint> ChooseCheckpoint(const std::string& path, const CheckpointChoice& choice);

struct Checkpoint {
  std::string directory;
  std::unique_ptr<server::CheckpointRows> rows;
  std::uint64_t job_seed = 0;
  std::string job_name;
  const Manifest& manifest() const { return rows->manifest(); }
  std::uint64_t SaltOf(const TableSpec& table) const { return TableSalt(job_seed, table.name); }
};
Expected<Checkpoint> OpenCheckpoint(const std::string& path, server::CheckpointRowsOptions options = {});

// The tables of these names, in order of the checkpoint; all of them if there are no names. kNotFound, naming those
// that there are.
Expected<std::vector<TableSpec>> ChooseTables(const Manifest& manifest, const std::vector<std::string>& names);

// A record of a table taken apart.
struct DecodedRow {
  std::span<const float> values, slots;
  std::optional<std::uint32_t> last;  // the clock, or second, of its last push
  std::optional<float> score;
};
class RowDecoder {
 public:
  explicit RowDecoder(const TableSpec& table);
  // Valid until the next call.
  DecodedRow Decode(std::span<const std::uint32_t> words);

 private:
  TableSpec table_;
  RowLayout layout_;
  std::vector<float> values_, slots_;
};

// Ranges of partitions to read one after the other: few enough files are then open at a time.
std::vector<server::PartitionRun> PartitionRuns(const Manifest& manifest);

// Calls take(row) for every row of the table, in order of partition and key. `take` returns a Status.
template <typename Take>
Status ForEachRow(server::CheckpointRows* rows, const TableSpec& table, Take take) {
  server::StoredRow row;
  for (const server::PartitionRun run : PartitionRuns(rows->manifest())) {
    TARN_RETURN_IF_ERROR(rows->Seek(table, run));
    for (;;) {
      const auto more = rows->Next(&row);
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
      TARN_RETURN_IF_ERROR(take(row));
    }
  }
  return {};
}

// One line that overwrites itself on a terminal, a line every few seconds elsewhere; nothing in the first two seconds.
class ProgressLine {
 public:
  ProgressLine(std::string what, std::uint64_t all) : what_(std::move(what)), all_(all) {}
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void Add(std::uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  std::uint64_t all_, done_ = 0;
  Clock::time_point start_ = Clock::now(), next_ = start_;
  bool shown_ = false;
};

// Verifies every byte of the checkpoint's files, or of those that are wanted, with progress.
Status VerifyAllFiles(const Checkpoint& checkpoint, const std::string& what);
Status VerifyWantedFiles(const Checkpoint& checkpoint, const std::string& what,
                         const std::function<bool(const CheckpointFile&)>& wanted);

// Whether a file may be written to `path`: nothing is there, or a regular file, and not in a checkpoint.
// kInvalidArgument, naming it.
Status CheckOutput(const std::string& path);

// 1.5 GB, 20 MB, 312 B.
std::string Bytes(std::uint64_t bytes);
// 1,234,567
std::string Count(std::uint64_t count);

}  // namespace tarn::inspector
