// A data file whose rows any worker can read by number. Splits are ranges of rows; all workers agree on them, because
// the number of a row is that of its line (from 0), including malformed lines.
//
//   auto train = Dataset::Open(job.data, job.data.train);
//   if (!train) ...
//   Batch batch;
//   Status read = (*train)->Read(first_row, 256, &batch);
//
// Formats (core/job/job.h's DataFormat), each plain or gzip, detected by the first bytes; CRLF counts as LF:
//
//   criteo  label 0/1, integer columns, categorical columns, separated by tabs; an empty field is missing. One key per
//           column (worker/data/keys.h), but none for an integer column whose rule is "none". With dense_integers,
//           also log(1 + max(v, 0)) of the integer columns as dense floats, 0 if missing.
//   libsvm  label, then `column:value` or `column`; "#" begins a comment. With data.classes = 2, labels -1 and 0 are
//           read as 0, and 1 as 1. With more classes, labels are 0 to classes - 1. Keys have column 0 and the index as
//           value; weights are the values (left out of a batch in which all are 1).
//   idx     the pair PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte, each with .gz or without: pixels scaled
//           to [0, 1] as dense floats, the class as label, no keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/job/job.h"
#include "worker/data/batch.h"

namespace tarn::worker {

struct DatasetOptions {
  std::uint64_t limit_rows = 0;  // only the first rows of the file; 0: all
  // A gzip file whose inflated size exceeds this is inflated into an unlinked temporary file.
  std::size_t inflated_ram_bytes_max = std::size_t{1} << 30;
  std::string cache_dir;  // directory of that file; empty: the system's temporary directory
  // Called on the reading thread, one call at a time, for each of the first ten malformed lines, with "FILE:LINE: WHY".
  // It must not call the data set, because a lock is held.
  std::function<void(const std::string&)> report_malformed;
  std::stop_token stop;  // Open stops soon after a request (kCancelled)
};

// Immutable once opened: any number of threads may read at once.
class Dataset {
 public:
  // Opens `file`, a path relative to section.dir or absolute. kNotFound with what was expected at which path;
  // kInvalidArgument for an invalid section or a file without rows; kMalformed; kIo; kCancelled.
  static Expected<std::unique_ptr<Dataset>> Open(const DataSection& section, const std::string& file,
                                                 const DatasetOptions& options = {});
  // The same from a text of format criteo or libsvm (kUnsupported: another); `name` stands for the file in messages.
  static Expected<std::unique_ptr<Dataset>> FromText(const DataSection& section, std::string name, std::string text,
                                                     const DatasetOptions& options = {});

  virtual ~Dataset() = default;

  virtual std::uint64_t rows() const = 0;           // lines of the file, malformed ones included
  virtual std::uint32_t fields() const = 0;         // keys per row; 0: it varies
  virtual std::uint32_t dense_columns() const = 0;  // floats per row

  // Appends rows [first_row, first_row + rows) to a batch that is empty (default or after Clear) or filled from a data
  // set of the same shape. Malformed lines are skipped, so that fewer rows may be appended; beyond
  // section.malformed_max of them the call fails with kMalformed, and the batch has the rows before that line.
  // kInvalidArgument for rows outside of the file; kIo if the file was truncated after Open.
  virtual Status Append(std::uint64_t first_row, std::size_t rows, Batch* batch) const = 0;

  // Clears the batch, then appends.
  Status Read(std::uint64_t first_row, std::size_t rows, Batch* batch) const;

  // Malformed lines seen so far, each counted once, up to malformed_max + 2; and the first ten, as "FILE:LINE: WHY".
  virtual std::uint64_t malformed() const = 0;
  virtual std::vector<std::string> malformed_messages() const = 0;
};

}  // namespace tarn::worker
