#include "tools/inspector/source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/job/job.h"
#include "kernels/convert.h"

namespace tarn::inspector {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFilesAtOnceMax = 128;
constexpr int kBarWidth = 24;

}  // namespace

Expected<std::string> ResolveCheckpoint(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(fs::path(path) / kManifestName, ignored)) return path;
  if (!fs::exists(path, ignored)) return Fail(ErrorCode::kNotFound, fmt::format("{}: not found", path));
  auto newest = FindNewestCheckpoint(path);
  if (newest) return newest;
  return Fail(
      ErrorCode::kNotFound,
      fmt::format("{}: neither a checkpoint (it has no {}) nor the folder of a run with a complete checkpoint in "
                  "checkpoints/; tools/inspect list RUN_DIR lists the checkpoints of a run",
                  path, kManifestName));
}

namespace {

// Whether the checkpoint belongs to the run of `newest`, or to one that this run resumed: its epochs have the same
// scores.
bool IsEarlier(const Manifest& checkpoint, const Manifest& newest) {
  const auto same = [](const EpochResult& a, const EpochResult& b) {
    return a.epoch == b.epoch && a.train == b.train && a.valid == b.valid;
  };
  return !checkpoint.epochs.empty() && checkpoint.epochs.size() <= newest.epochs.size() &&
         std::equal(checkpoint.epochs.begin(), checkpoint.epochs.end(), newest.epochs.begin(), same);
}

// The path of the run's best checkpoint. The recorded path may be in another run: the one that this run resumed. Both
// may have been moved since then, perhaps together, and another run may have taken the folder of the older one.
Expected<std::string> FindBest(const std::string& run_dir, const Manifest& newest) {
  if (newest.best_checkpoint.empty())
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}: no best checkpoint, because no epoch of the run is finished; use --newest "
                            "for the newest one",
                            run_dir));
  std::error_code ignored;
  const fs::path named = newest.best_checkpoint, in_run = fs::path("checkpoints") / named.filename();
  const fs::path older = fs::path(run_dir) / ".." / named.parent_path().parent_path().filename();
  std::string found;
  for (const fs::path& place : {run_dir / in_run, named, (older / in_run).lexically_normal()}) {
    if (!fs::exists(place / kManifestName, ignored)) continue;
    const auto manifest = ReadManifest(place.string());
    if (!manifest) return std::unexpected(manifest.error());
    if (IsEarlier(*manifest, newest)) return place.string();
    found = fmt::format(" ({} is of another run)", place.string());
  }
  return Fail(
      ErrorCode::kNotFound,
      fmt::format("{}: the best checkpoint of {} no longer exists{}; if it was moved, name its new place instead "
                  "of the run; --newest takes the newest one",
                  named.string(), run_dir, found));
}

Expected<ChosenCheckpoint> ChooseBest(const std::string& run_dir, bool if_evaluated) {
  auto newest = ResolveCheckpoint(run_dir);
  if (!newest) return std::unexpected(newest.error());
  const auto manifest = ReadManifest(*newest);
  if (!manifest) return std::unexpected(manifest.error());
  const auto validated = [](const EpochResult& epoch) { return epoch.valid.has_value(); };
  if (if_evaluated && (manifest->best_checkpoint.empty() || std::ranges::none_of(manifest->epochs, validated)))
    return ChosenCheckpoint{std::move(*newest), {}};
  auto best = FindBest(run_dir, *manifest);
  if (!best) return std::unexpected(best.error());
  const auto id = CheckpointIdOf(*best);
  if (!id || *id == manifest->id) return ChosenCheckpoint{std::move(*best), {}};
  const auto epochs = std::ranges::find(manifest->epochs.rbegin(), manifest->epochs.rend(), true, &EpochResult::best);
  return ChosenCheckpoint{
      std::move(*best),
      fmt::format("checkpoint {} is the best{}; the newest is {}", id->value,
                  epochs == manifest->epochs.rend() ? "" : fmt::format(", of epoch {}", EpochNumber(epochs->epoch)),
                  manifest->id.value)};
}

}  // namespace

Expected<ChosenCheckpoint> ChooseCheckpoint(const std::string& path, const CheckpointChoice& choice) {
  using Which = CheckpointChoice::Which;
  std::error_code ignored;
  const bool itself = fs::exists(fs::path(path) / kManifestName, ignored);
  const bool asked = choice.which == Which::kBest || choice.which == Which::kNumber;
  if (itself && asked)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: is a checkpoint; --best and --checkpoint expect the folder of a run", path));
  const bool exists = fs::exists(path, ignored);
  if (!itself && exists && choice.which == Which::kNumber) {
    const fs::path directory = fs::path(path) / "checkpoints" / fmt::format("ckpt-{}", choice.number);
    if (fs::exists(directory / kManifestName, ignored)) return ChosenCheckpoint{directory.string(), {}};
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}: no complete checkpoint of this number; tools/inspect list {} lists the checkpoints",
                            directory.string(), path));
  }
  if (!itself && exists && choice.which != Which::kNewest)
    return ChooseBest(path, choice.which == Which::kBestIfEvaluated);
  auto directory = ResolveCheckpoint(path);
  if (!directory) return std::unexpected(directory.error());
  return ChosenCheckpoint{std::move(*directory), {}};
}

Expected<Checkpoint> OpenCheckpoint(const std::string& path, server::CheckpointRowsOptions options) {
  auto directory = ResolveCheckpoint(path);
  if (!directory) return std::unexpected(directory.error());
  auto rows = server::OpenCheckpointRows(*directory, std::move(options));
  if (!rows) return std::unexpected(rows.error());
  const auto job = ParseJob((*rows)->manifest().job_text, *directory + "/" + kManifestName, "/");
  if (!job) return std::unexpected(job.error());
  return Checkpoint{std::move(*directory), std::move(*rows), job->job.seed, job->job.name};
}

Expected<std::vector<TableSpec>> ChooseTables(const Manifest& manifest, const std::vector<std::string>& names) {
  if (names.empty()) return manifest.tables;
  std::string known;
  for (const TableSpec& table : manifest.tables) known += (known.empty() ? "'" : ", '") + table.name + "'";
  for (const std::string& name : names)
    if (std::ranges::find(manifest.tables, name, &TableSpec::name) == manifest.tables.end())
      return Fail(ErrorCode::kNotFound, fmt::format("no table '{}' in the checkpoint; the tables are {}", name,
                                                    known.empty() ? "none" : known));
  std::vector<TableSpec> chosen;
  for (const TableSpec& table : manifest.tables)
    if (std::ranges::find(names, table.name) != names.end()) chosen.push_back(table);
  return chosen;
}

RowDecoder::RowDecoder(const TableSpec& table)
    : table_(table), layout_(LayoutOf(table)), values_(table.dim), slots_(layout_.slot_words) {}

DecodedRow RowDecoder::Decode(std::span<const std::uint32_t> words) {
  const std::uint32_t* at = words.data();
  kernels::DecodeValues(table_.row_codec, table_.dim, reinterpret_cast<const std::byte*>(at), values_.data());
  if (!slots_.empty()) std::memcpy(slots_.data(), at + layout_.value_words, slots_.size() * sizeof(float));
  DecodedRow row{values_, slots_, {}, {}};
  if (layout_.life_words == 0) return row;
  const std::uint32_t* life = at + layout_.value_words + layout_.slot_words;
  row.last = life[0];
  std::memcpy(&row.score.emplace(), &life[1], sizeof(float));
  return row;
}

std::vector<server::PartitionRun> PartitionRuns(const Manifest& manifest) {
  std::size_t files = 0;
  for (const Generation& generation : manifest.generations) files += generation.files.size();
  const server::PartitionRun all = server::AllPartitions(manifest);
  if (files <= kFilesAtOnceMax) return {all};
  std::vector<server::PartitionRun> runs;
  for (std::uint32_t p = 0; p <= all.last.value; ++p) runs.push_back({PartitionId(p), PartitionId(p)});
  return runs;
}

ProgressLine::~ProgressLine() {
  if (shown_ && ::isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
}

void ProgressLine::Add(std::uint64_t done) {
  done_ += done;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (seconds < 2 || now < next_) return;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  next_ = now + std::chrono::milliseconds(terminal ? 200 : 5000);
  const double share = all_ == 0 ? 1 : std::min(1.0, static_cast<double>(done_) / static_cast<double>(all_));
  const double left = share <= 0 ? 0 : seconds * (1 - share) / share;
  const int full = static_cast<int>(share * kBarWidth);
  if (terminal)
    fmt::print(stderr, "\r{} [{}{}] {:3.0f}%, {:.0f} s left\033[K", what_, std::string(full, '='),
               std::string(kBarWidth - full, ' '), share * 100, left);
  else
    fmt::print(stderr, "{}: {:.0f}%, {:.0f} s left\n", what_, share * 100, left);
  std::fflush(stderr);
  shown_ = true;
}

Status VerifyAllFiles(const Checkpoint& checkpoint, const std::string& what) {
  return VerifyWantedFiles(checkpoint, what, [](const CheckpointFile&) { return true; });
}

Status VerifyWantedFiles(const Checkpoint& checkpoint, const std::string& what,
                         const std::function<bool(const CheckpointFile&)>& wanted) {
  std::uint64_t bytes = 0;
  for (const Generation& generation : checkpoint.manifest().generations)
    for (const CheckpointFile& file : generation.files) bytes += wanted(file) ? file.bytes : 0;
  ProgressLine progress(what, bytes);
  return server::VerifyFiles(checkpoint.directory, checkpoint.manifest(), wanted,
                             [&](std::uint64_t done) { progress.Add(done); });
}

Status CheckOutput(const std::string& path) {
  std::error_code error;
  const auto type = fs::symlink_status(path, error).type();
  if (type != fs::file_type::not_found && type != fs::file_type::regular)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: this is {}, expected a new name or a file to replace", path,
                            type == fs::file_type::directory ? "a folder" : "not a regular file"));
  if (fs::exists(fs::absolute(path).parent_path() / kManifestName, error))
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: is in a checkpoint, which must not be changed", path));
  return {};
}

std::string Bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, kUnits[unit]);
}

std::string Count(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

}  // namespace tarn::inspector
