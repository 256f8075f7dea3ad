#include "tools/generate/write_set.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/file.h"
#include "core/json.h"
#include "core/quality.h"
#include "kernels/loss.h"

namespace tarn::generate {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kChunkRows = 16384;
constexpr std::size_t kReportBytesMax = 1 << 20;
constexpr int kVersion = 1;  // incremented when the same parameters give other bytes

struct Part {
  std::string name;
  std::uint64_t first_row, rows;
};

// Figures of a written file of the set.
struct PartSummary {
  std::uint64_t bytes = 0;
  Quality best;  // by the teacher's probabilities
};

struct Chunk {
  std::string text;
  std::vector<float> logits, labels;  // per row
  double loss = 0;                    // sum over all rows

  void Make(const Generator& generator, std::uint64_t first, std::uint64_t rows) {
    text.resize(rows * kGeneratedLineBytesMax);
    logits.clear();
    labels.clear();
    char* out = text.data();
    Row row;
    for (std::uint64_t i = 0; i < rows; ++i) {
      generator.Make(first + i, &row);
      out = WriteLine(row, out);
      logits.push_back(static_cast<float>(row.logit));
      labels.push_back(row.label ? 1.0f : 0.0f);
    }
    loss = kernels::LogisticLoss(rows, logits.data(), labels.data(), 1.0f, nullptr);
    text.resize(static_cast<std::size_t>(out - text.data()));
  }
};

// A file that gets its name when it is complete. Only one process at a time can write it.
class PartialFile {
 public:
  explicit PartialFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (file_ < 0) return;
    ::unlink(partial_.c_str());
    ::close(file_);
  }

  Status Open() {
    const int file = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return std::unexpected(SystemError(partial_, "create", errno));
    if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
      ::close(file);
      return Fail(ErrorCode::kOverloaded, fmt::format("another process is writing {}", partial_));
    }
    file_ = file;
    if (::ftruncate(file_, 0) != 0) return std::unexpected(SystemError(partial_, "truncate", errno));
    return {};
  }

  Status Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return std::unexpected(SystemError(partial_, "write", errno));
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
  }

  // Does not sync: after a power failure the sizes in generate.json show which files are lost, and the set is written
  // again.
  Status Finish() {
    if (::rename(partial_.c_str(), path_.c_str()) != 0) return std::unexpected(SystemError(partial_, "rename", errno));
    if (::close(std::exchange(file_, -1)) != 0) return std::unexpected(SystemError(path_, "close", errno));
    return {};
  }

 private:
  std::string path_, partial_;
  int file_ = -1;
};

std::array<Part, 3> PartsOf(const SetOptions& options) {
  return {{{"train.tsv", 0, options.train_rows},
           {"valid.tsv", kValidFirstRow, options.valid_rows},
           {"test.tsv", kTestFirstRow, options.test_rows}}};
}

std::string PathOf(const SetOptions& options, const std::string& name) { return options.dir + "/" + name; }

// Writes chunks in rounds of one per thread, so the order of chunks does not depend on the number of threads.
Status WritePart(const Generator& generator, const Part& part, const SetOptions& options,
                 const std::function<void(std::uint64_t)>& made, PartSummary* summary) {
  PartialFile file(PathOf(options, part.name));
  TARN_RETURN_IF_ERROR(file.Open());
  QualityTally best;
  std::vector<Chunk> chunks(std::max(1u, options.threads));
  for (std::uint64_t done = 0; done < part.rows;) {
    const auto rows_of = [&](std::size_t i) {
      const std::uint64_t begin = std::min(done + i * kChunkRows, part.rows);
      return std::min(kChunkRows, part.rows - begin);
    };
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 1; i < chunks.size() && rows_of(i) > 0; ++i)
        threads.emplace_back([&, i] { chunks[i].Make(generator, part.first_row + done + i * kChunkRows, rows_of(i)); });
      chunks[0].Make(generator, part.first_row + done, rows_of(0));
    }
    std::uint64_t round_rows = 0;
    for (std::size_t i = 0; i < chunks.size() && rows_of(i) > 0; ++i) {
      TARN_RETURN_IF_ERROR(file.Write(chunks[i].text));
      summary->bytes += chunks[i].text.size();
      for (std::size_t r = 0; r < chunks[i].logits.size(); ++r)
        best.AddBinary(chunks[i].logits[r], chunks[i].labels[r] > 0.5f);
      best.AddLoss(chunks[i].loss);
      round_rows += rows_of(i);
    }
    done += round_rows;
    made(round_rows);
  }
  summary->best = best.Take();
  return file.Finish();
}

Json ParametersJson(const SetOptions& options) {
  const GeneratorOptions& generator = options.generator;
  return {{"version", kVersion},
          {"profile", options.profile},
          {"seed", generator.seed},
          {"train_rows", options.train_rows},
          {"valid_rows", options.valid_rows},
          {"test_rows", options.test_rows},
          {"numeric", generator.teacher.numeric},
          {"categorical", generator.teacher.categorical},
          {"interaction", generator.teacher.interaction},
          {"bias", generator.teacher.bias},
          {"skew", generator.skew},
          {"label_noise", generator.label_noise},
          {"drift", generator.drift},
          {"day_rows", generator.day_rows}};
}

double Rounded(double value) { return std::round(value * 1e6) / 1e6; }

Json QualityJson(const Quality& best) {
  return {{"rows", best.rows},
          {"positive_share", Rounded(static_cast<double>(best.positives) / static_cast<double>(best.rows))},
          {"best_auc", Rounded(best.Auc())},
          {"best_logloss", Rounded(best.LogLoss())}};
}

std::string ReportOf(const SetOptions& options, const std::array<PartSummary, 3>& summaries) {
  Quality all;
  Json files = Json::object();
  const auto parts = PartsOf(options);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].rows == 0) continue;
    Json& file = files[parts[i].name] = {{"bytes", summaries[i].bytes}};
    file.update(QualityJson(summaries[i].best));
    all.Merge(summaries[i].best);
  }
  const Json report = {{"parameters", ParametersJson(options)}, {"files", std::move(files)}, {"all", QualityJson(all)}};
  return JsonText(report, 2) + "\n";
}

// Checks that `report` has these parameters and that the files have the sizes in it.
Status CheckReport(const SetOptions& options, const std::string& report) {
  const std::string path = PathOf(options, "generate.json");
  const auto differs = [](const std::string& where, const std::string& found, const std::string& expected) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}, expected {}", where, found, expected));
  };
  const auto json = Json::parse(report, nullptr, false);
  if (!json.is_object() || !json.contains("parameters") || !json["parameters"].is_object())
    return differs(path, "no parameters", "those of a generated set");
  const Json& found = json["parameters"];
  const Json expected = ParametersJson(options);
  for (const auto& [key, value] : expected.items())
    if (!found.contains(key) || found[key] != value)
      return differs(path, fmt::format("{} = {}", key, found.contains(key) ? JsonText(found[key]) : "nothing"),
                     JsonText(value));
  if (found.size() != expected.size()) return differs(path, "other parameters", JsonText(expected));
  for (const Part& part : PartsOf(options)) {
    if (part.rows == 0) continue;
    const std::string file = PathOf(options, part.name);
    const auto bytes = Json::json_pointer("/files/" + part.name + "/bytes");
    std::error_code failed;
    const std::uintmax_t size = fs::file_size(file, failed);
    if (failed) return std::unexpected(SystemError(file, "find its size", failed.value()));
    if (!json.contains(bytes) || json[bytes] != size)
      return differs(file, fmt::format("{} bytes", size),
                     json.contains(bytes) ? JsonText(json[bytes]) : "no such file");
  }
  return {};
}

Status Validate(const SetOptions& options) {
  TARN_RETURN_IF_ERROR(generate::Validate(options.generator));
  if (options.train_rows == 0) return Fail(ErrorCode::kInvalidArgument, "0 training rows: expected 1 or more (--rows)");
  if (std::max({options.train_rows, options.valid_rows, options.test_rows}) > kValidFirstRow)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} training, {} validation and {} test rows: expected at most {} of each",
                            options.train_rows, options.valid_rows, options.test_rows, kValidFirstRow));
  if (options.dir.empty()) return Fail(ErrorCode::kInvalidArgument, "no output folder: expected a path (--out)");
  return {};
}

}  // namespace

Expected<SetResult> CheckSet(const SetOptions& options) {
  TARN_RETURN_IF_ERROR(Validate(options));
  auto report = ReadFile(PathOf(options, "generate.json"), kReportBytesMax);
  if (!report) return std::unexpected(report.error());
  TARN_RETURN_IF_ERROR(CheckReport(options, *report));
  return SetResult{true, *std::move(report)};
}

Expected<SetResult> WriteSet(const SetOptions& options, const Progress& progress) {
  TARN_RETURN_IF_ERROR(Validate(options));
  std::error_code failed;
  fs::create_directories(options.dir, failed);
  if (failed) return std::unexpected(SystemError(options.dir, "create the folder", failed.value()));
  if (auto existing = CheckSet(options)) return existing;
  const std::string report_path = PathOf(options, "generate.json");
  fs::remove(report_path, failed);

  GeneratorOptions generator_options = options.generator;
  generator_options.last_day = (options.train_rows - 1) / generator_options.day_rows;
  const Generator generator(generator_options);
  std::array<PartSummary, 3> summaries;
  std::uint64_t rows_made = 0;
  const std::uint64_t rows_all = options.train_rows + options.valid_rows + options.test_rows;
  const auto parts = PartsOf(options);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].rows == 0) {
      fs::remove(PathOf(options, parts[i].name), failed);  // removes the file of an earlier set
      continue;
    }
    const auto made = [&](std::uint64_t rows) {
      rows_made += rows;
      if (progress) progress(rows_made, rows_all);
    };
    TARN_RETURN_IF_ERROR(WritePart(generator, parts[i], options, made, &summaries[i]));
  }
  const std::string report = ReportOf(options, summaries);
  TARN_RETURN_IF_ERROR(WriteFileAtomic(report_path, report));
  return SetResult{false, report};
}

}  // namespace tarn::generate
