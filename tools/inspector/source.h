// Finds and reads checkpoints for tarn-inspect.
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

// The directory of the checkpoint at `path`: `path` itself if it contains a MANIFEST, else the newest complete
// checkpoint of the run in it. kNotFound names what was searched.
Expected<std::string> ResolveCheckpoint(const std::string& path);

// Selects a checkpoint of a run.
struct CheckpointChoice {
  enum class Which : std::uint8_t {
    kNewest,
    kBest,             // of the best epoch: with the lowest validation log-loss; without validation, the last one
    kBestIfEvaluated,  // kBest if an epoch was validated, else kNewest
    kNumber,
  };
  Which which = Which::kNewest;
  std::uint64_t number = 0;
};
struct ChosenCheckpoint {
  std::string directory;
  // "checkpoint 3 is the best, of epoch 2; the newest is 7". Empty unless the best was chosen and is not the newest.
  std::string note;
};
// `path`: a checkpoint, or a run directory in which `choice` selects one. kNotFound: it does not exist.
// kInvalidArgument: `path` is a checkpoint and `choice` selects another.
Expected<ChosenCheckpoint> ChooseCheckpoint(const std::string& path, const CheckpointChoice& choice);

struct Checkpoint {
  std::string directory;
  std::unique_ptr<server::CheckpointRows> rows;
  std::uint64_t job_seed = 0;
  std::string job_name;
  const Manifest& manifest() const { return rows->manifest(); }
  std::uint64_t SaltOf(const TableSpec& table) const { return TableSalt(job_seed, table.name); }
};
// Opens the checkpoint that ResolveCheckpoint finds at `path`, and parses its job. Does not verify the files of rows.
Expected<Checkpoint> OpenCheckpoint(const std::string& path, server::CheckpointRowsOptions options = {});

// The tables with these names, in the order of the checkpoint; all if `names` is empty. kNotFound lists the existing
// tables.
Expected<std::vector<TableSpec>> ChooseTables(const Manifest& manifest, const std::vector<std::string>& names);

// A decoded record of a table.
struct DecodedRow {
  std::span<const float> values, slots;
  std::optional<std::uint32_t> last;  // the clock, or second, of its last push
  std::optional<float> score;
};
class RowDecoder {
 public:
  explicit RowDecoder(const TableSpec& table);
  // The result is valid until the next call.
  DecodedRow Decode(std::span<const std::uint32_t> words);

 private:
  TableSpec table_;
  RowLayout layout_;
  std::vector<float> values_, slots_;
};

// Ranges of partitions to read one after the other, so that few files are open at a time.
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

// Prints progress after two seconds: on a terminal one line that is overwritten, else a line every few seconds.
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

// Verifies every byte of the checkpoint's files, or of the `wanted` ones. Prints progress, with `what` as its name.
Status VerifyAllFiles(const Checkpoint& checkpoint, const std::string& what);
Status VerifyWantedFiles(const Checkpoint& checkpoint, const std::string& what,
                         const std::function<bool(const CheckpointFile&)>& wanted);

// Checks that a file may be written to `path`: it does not exist or is a regular file, and is not in a checkpoint.
// kInvalidArgument, with the path.
Status CheckOutput(const std::string& path);

// 1.5 GB, 20 MB, 312 B.
std::string Bytes(std::uint64_t bytes);
// 1,234,567
std::string Count(std::uint64_t count);

}  // namespace tarn::inspector
