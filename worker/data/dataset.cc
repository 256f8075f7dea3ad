#include "worker/data/dataset.h"

#include <filesystem>

#include <fmt/format.h>

#include "worker/data/criteo_parser.h"
#include "worker/data/idx_dataset.h"
#include "worker/data/libsvm_parser.h"
#include "worker/data/line_dataset.h"

namespace tarn::worker {
namespace {

template <typename Parser>
Expected<std::unique_ptr<Dataset>> Make(const DataSection& section, std::string name, FileBytes bytes,
                                        const DatasetOptions& options) {
  if (bytes.bytes().empty())
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("data file {} is empty: expected {}", name, Parser::Describe(section)));
  auto set =
      std::make_unique<LineDataset<Parser>>(Parser(section), std::move(name), std::move(bytes), section, options);
  if (options.stop.stop_requested()) return Fail(ErrorCode::kCancelled, "opening a data file was cancelled");
  TARN_RETURN_IF_ERROR(set->CheckWhole());
  return set;
}

template <typename Parser>
Expected<std::unique_ptr<Dataset>> OpenLines(const DataSection& section, const std::string& path,
                                             const DatasetOptions& options) {
  TARN_RETURN_IF_ERROR(Parser::Validate(section));
  auto bytes = FileBytes::Open(path, Parser::Describe(section),
                               {options.inflated_ram_bytes_max, options.cache_dir, options.stop});
  if (!bytes) return std::unexpected(bytes.error());
  return Make<Parser>(section, path, std::move(*bytes), options);
}

template <typename Parser>
Expected<std::unique_ptr<Dataset>> MakeFromText(const DataSection& section, std::string name, std::string text,
                                                const DatasetOptions& options) {
  TARN_RETURN_IF_ERROR(Parser::Validate(section));
  return Make<Parser>(section, std::move(name), FileBytes::FromText(std::move(text)), options);
}

}  // namespace

Status CheckRows(const std::string& name, std::uint64_t rows, std::uint64_t first, std::size_t count) {
  if (first <= rows && count <= rows - first) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} rows from row {} of {}: expected rows below {}", count, first, name, rows));
}

std::string ExplainFirst(std::string_view line, const std::string& why) {
  if (line.starts_with("\xEF\xBB\xBF")) return "begins with a byte order mark: expected the label";
  if (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF"))
    return "begins with the byte order mark of UTF-16: expected UTF-8 or another encoding that extends ASCII";
  const bool words = line.find_first_of("0123456789+-") != 0;
  return words ? why + "; to skip a header, set data.malformed_max = 1" : why;
}

Expected<std::unique_ptr<Dataset>> Dataset::Open(const DataSection& section, const std::string& file,
                                                 const DatasetOptions& options) {
  if (file.empty()) return Fail(ErrorCode::kInvalidArgument, "a data file has no name: expected a name in [data]");
  const std::string path = (std::filesystem::path(section.dir) / file).string();
  switch (section.format) {
    case DataFormat::kCriteo: return OpenLines<CriteoParser>(section, path, options);
    case DataFormat::kLibsvm: return OpenLines<LibsvmParser>(section, path, options);
    case DataFormat::kIdx: return OpenIdx(section, path, options);
  }
  return Fail(ErrorCode::kUnsupported, "data.format is unknown");
}

Expected<std::unique_ptr<Dataset>> Dataset::FromText(const DataSection& section, std::string name, std::string text,
                                                     const DatasetOptions& options) {
  if (section.format == DataFormat::kCriteo)
    return MakeFromText<CriteoParser>(section, std::move(name), std::move(text), options);
  if (section.format == DataFormat::kLibsvm)
    return MakeFromText<LibsvmParser>(section, std::move(name), std::move(text), options);
  return Fail(ErrorCode::kUnsupported, "data.format = \"idx\": a data set from text needs \"criteo\" or \"libsvm\"");
}

Status Dataset::Read(std::uint64_t first_row, std::size_t rows, Batch* batch) const {
  batch->Clear();
  return Append(first_row, rows, batch);
}

}  // namespace tarn::worker
