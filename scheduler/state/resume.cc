#include "scheduler/state/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>

namespace tarn::scheduler {
namespace {

// "section.key" -> value, from the text of ResolvedToml, which has one key per line.
std::map<std::string, std::string> Keys(const std::string& toml) {
  std::map<std::string, std::string> keys;
  std::string section;
  std::size_t begin = 0;
  while (begin < toml.size()) {
    const std::size_t end = std::min(toml.find('\n', begin), toml.size());
    const std::string line = toml.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('['))
      section = line.substr(1, line.find_last_of(']') - 1);
    else if (equals != std::string::npos)
      keys[section + "." + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return keys;
}

bool MustAgree(std::string_view key) {
  if (key == "data.dir" || key == "data.malformed_max" || key == "data.split_rows") return false;
  if (key.starts_with("data.") || key.starts_with("model.")) return true;
  if (key.starts_with("optimizer.")) return key.ends_with(".kind") && !key.ends_with("schedule.kind");
  return key == "job.seed" || key == "train.batch_rows";
}

// The first file of a shard's log (server/log/log_format.h) in a run directory; empty: none.
std::string FindLog(const std::string& run_dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator shard(fs::path(run_dir) / "log", error), end; !error && shard != end;
       shard.increment(error)) {
    std::error_code ignored;
    for (fs::directory_iterator file(shard->path(), ignored), last; !ignored && file != last; file.increment(ignored))
      if (file->path().filename().string().starts_with("segment-")) return file->path().string();
  }
  return {};
}

}  // namespace

Expected<std::string> ResolveCheckpoint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(fs::path(path) / kManifestName, ignored)) {
    fs::path directory = fs::absolute(path);
    while (!directory.has_filename() || directory.filename() == ".") directory = directory.parent_path();
    return directory.string();
  }
  auto newest = FindNewestCheckpoint(path);
  if (newest) return newest;
  const auto job = LoadJob(path + "/job.toml");
  if (!job || job->storage.durability != Durability::kNone) return newest;
  return Fail(
      ErrorCode::kNotFound,
      fmt::format("--resume {}: this run has no checkpoint, because its job has storage.durability = \"none\". Start "
                  "it again from the beginning, with --set storage.durability=checkpoint or log",
                  path));
}

Status CheckLogsHaveState(const std::string& run_dir) {
  std::error_code ignored;
  for (const char* name : {kStateName, kOverName})
    if (std::filesystem::exists(std::filesystem::path(run_dir) / name, ignored)) return {};
  const std::string log = FindLog(run_dir);
  if (log.empty()) return {};
  const auto newest = FindNewestCheckpoint(run_dir);
  return Fail(
      ErrorCode::kNotFound,
      fmt::format("{}/{}: not found, but the run is unfinished, and its logs ({}) are useless without this file. {}",
                  run_dir, kStateName, log,
                  newest ? fmt::format("To continue from its newest checkpoint without the logs: --resume {}, in a "
                                       "new folder",
                                       *newest)
                         : std::string("It has no checkpoint to continue from instead")));
}

Expected<Manifest> ReadMovedManifest(const std::string& directory) {
  namespace fs = std::filesystem;
  auto manifest = ReadManifest(directory);
  if (!manifest || manifest->best_checkpoint.empty()) return manifest;
  const fs::path beside = fs::path(directory).parent_path() / fs::path(manifest->best_checkpoint).filename();
  std::error_code ignored;
  if (fs::exists(beside / kManifestName, ignored)) manifest->best_checkpoint = beside.string();
  return manifest;
}

Status CheckCheckpointsAreOurs(const std::string& run_dir, const std::string& resumed) {
  namespace fs = std::filesystem;
  const auto newest = FindNewestCheckpoint(run_dir);
  if (!newest) return {};
  std::error_code ignored;
  if (!resumed.empty() && fs::equivalent(fs::path(resumed).parent_path(), fs::path(*newest).parent_path(), ignored))
    return {};
  return Fail(ErrorCode::kAlreadyExists,
              fmt::format("{}: this folder has the checkpoint of another run, which a new run would remove later: "
                          "expected a folder without checkpoints. To continue from it: --resume {}",
                          *newest, run_dir));
}

Expected<std::optional<Manifest>> TakeUp(const std::string& run_dir, SchedulerState* state) {
  const auto is_ours = [&](const std::string& directory) {
    return std::ranges::find(state->kept, directory) != state->kept.end();
  };
  const auto relocate = [&](std::string* directory) {
    *directory =
        (std::filesystem::path(run_dir) / "checkpoints" / std::filesystem::path(*directory).filename()).string();
  };
  // Other paths may belong to the run from which this one was resumed.
  for (std::string* directory : {&state->progress.best_checkpoint, &state->whole_directory})
    if (is_ours(*directory)) relocate(directory);
  for (std::string& directory : state->kept) relocate(&directory);
  for (std::string& directory : state->outdated) relocate(&directory);
  if (!state->pending_directory.empty()) relocate(&state->pending_directory);
  if (state->whole_directory.empty()) return std::nullopt;

  auto manifest = ReadMovedManifest(state->whole_directory);
  if (!manifest)
    return Fail(manifest.error().code, fmt::format("{}; the logs of the run in {} begin at this checkpoint",
                                                   manifest.error().message, run_dir));
  const std::uint64_t files = FilesHash(*manifest);
  if (files == state->whole_files) return *std::move(manifest);
  return Fail(
      ErrorCode::kCorrupt,
      fmt::format("{}/{}: its files ({:016x}) are not those of the checkpoint at which the logs of the run in {} "
                  "begin ({:016x}): it belongs to another run",
                  state->whole_directory, kManifestName, files, run_dir, state->whole_files));
}

Status CheckSameJob(const Job& job, const Manifest& manifest, const std::string& directory) {
  const std::string origin = directory + "/" + kManifestName;
  auto old = ParseJob(manifest.job_text, origin, "/");
  if (!old) return std::unexpected(old.error());
  return CheckSameJob(job, *old, fmt::format("the checkpoint {}, which belongs to another job", directory));
}

Status CheckSameJob(const Job& job, const Job& old, const std::string& place) {
  const auto wanted = Keys(ResolvedToml(job)), stored = Keys(ResolvedToml(old));
  for (const auto& [key, value] : wanted) {
    auto it = stored.find(key);
    if (!MustAgree(key) || (it != stored.end() && it->second == value)) continue;
    const std::size_t dot = key.rfind('.');
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("resume: [{}] {} is {} in the job, but {} in {}", key.substr(0, dot), key.substr(dot + 1),
                            value, it == stored.end() ? std::string("absent") : it->second, place));
  }
  return {};
}

Status CheckEpochs(const Job& job, const Manifest& manifest, const std::string& directory) {
  const auto begun = std::uint64_t{manifest.data.epoch} + 1;
  const bool midway = manifest.epochs.size() < begun &&
                      std::ranges::any_of(manifest.data.trained, [](std::uint64_t rows) { return rows != 0; });
  if (!midway || job.train.epochs >= begun) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("resume: [train] epochs is {}, but the checkpoint {} was cut in epoch {}: expected at "
                          "least {}",
                          job.train.epochs, directory, begun, begun));
}

}  // namespace tarn::scheduler
