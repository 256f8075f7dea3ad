// A data set whose rows are lines of a file, with a parser for one line.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/limits.h"
#include "worker/data/dataset.h"
#include "worker/data/file_bytes.h"
#include "worker/data/line_index.h"
#include "worker/data/malformed_log.h"

namespace tarn::worker {

// kInvalidArgument if rows [first, first + count) are not all below `rows`.
Status CheckRows(const std::string& name, std::uint64_t rows, std::uint64_t first, std::size_t count);

// Why the first line of a file is malformed: a byte order mark, else `why`. Adds advice if the line looks like a
// header.
std::string ExplainFirst(std::string_view line, const std::string& why);

// Parser: has fields(), dense_columns(), Reserve, Parse and Explain like worker/data/criteo_parser.h.
template <typename Parser>
class LineDataset final : public Dataset {
 public:
  LineDataset(Parser parser, std::string name, FileBytes bytes, const DataSection& section,
              const DatasetOptions& options)
      : parser_(std::move(parser)),
        name_(std::move(name)),
        bytes_(std::move(bytes)),
        index_(bytes_.bytes(), options.limit_rows, options.stop),
        malformed_(name_, section.malformed_max, options.report_malformed) {}

  // Fails if the file was truncated while its lines were counted.
  Status CheckWhole() const { return bytes_.CheckWhole(); }

  std::uint64_t rows() const override { return index_.lines(); }
  std::uint32_t fields() const override { return parser_.fields(); }
  std::uint32_t dense_columns() const override { return parser_.dense_columns(); }
  std::uint64_t malformed() const override { return malformed_.count(); }
  std::vector<std::string> malformed_messages() const override { return malformed_.messages(); }

  Status Append(std::uint64_t first_row, std::size_t rows, Batch* batch) const override {
    TARN_RETURN_IF_ERROR(CheckRows(name_, index_.lines(), first_row, rows));
    batch->fields = parser_.fields();
    batch->dense_columns = parser_.dense_columns();
    if (batch->offsets.empty()) batch->offsets.push_back(0);
    if (rows == 0) return {};
    if (rows > 1)
      parser_.Reserve(rows, batch);  // else, row after row of a shuffled batch, each would copy all before it
    const std::string_view text = bytes_.bytes();
    std::size_t begin = index_.Offset(first_row);
    for (std::uint64_t row = first_row; row < first_row + rows; ++row) {
      const std::size_t end = LineEnd(text, begin);
      // A malformed line may be caused by a truncated file; then that error is reported.
      if (const Status read = AppendLine(row, text.substr(begin, end - begin), batch); !read) {
        TARN_RETURN_IF_ERROR(bytes_.CheckWhole());
        return read;
      }
      begin = std::min(end + 1, text.size());
    }
    return bytes_.CheckWhole();
  }

 private:
  Status AppendLine(std::uint64_t row, std::string_view line, Batch* batch) const {
    if (line.size() <= limits::kLineBytesMax) [[likely]] {
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (parser_.Parse(line, batch)) [[likely]]
        return {};
      const std::string why = parser_.Explain(line);
      return Malformed(row, row == 0 ? ExplainFirst(line, why) : why);
    }
    return Malformed(row, fmt::format("line of {} bytes: expected at most {}", line.size(), limits::kLineBytesMax));
  }

  // Records a malformed line. If there are too many and the file's first line is one of them, the error names that line
  // first: the file may have another format than the job file states, and workers begin to read anywhere in it.
  Status Malformed(std::uint64_t row, const std::string& why) const {
    Status within = malformed_.Add(row, why);
    if (within || row == 0) return within;
    std::string_view first = bytes_.bytes().substr(0, LineEnd(bytes_.bytes(), 0));
    if (first.ends_with('\r')) first.remove_suffix(1);
    Batch scratch{.offsets = {0}};
    if (first.size() > limits::kLineBytesMax || parser_.Parse(first, &scratch)) return within;
    return malformed_.AddFirst(ExplainFirst(first, parser_.Explain(first)));
  }

  const Parser parser_;
  const std::string name_;
  const FileBytes bytes_;
  const LineIndex index_;
  mutable MalformedLog malformed_;
};

}  // namespace tarn::worker
