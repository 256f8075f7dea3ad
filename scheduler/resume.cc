#include "scheduler/resume.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string_view>

namespace tarn::scheduler {
namespace {

// "section.key" -> value, of the text that ToToml writes: one key a line.
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

}  // namespace

Expected<std::string> ResolveCheckpoint(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(path) / kManifestName, ignored)) return path;
  return FindNewestCheckpoint(path);
}

Status CheckSameJob(const Job& job, const Manifest& manifest, const std::string& directory) {
  const std::string origin = directory + "/" + kManifestName;
  auto old = ParseJob(manifest.job_text, origin, "/");
  if (!old) return std::unexpected(old.error());
  const auto here = Keys(ToToml(job)), there = Keys(ToToml(*old));
  for (const auto& [key, value] : here) {
    auto it = there.find(key);
    if (!MustAgree(key) || (it != there.end() && it->second == value)) continue;
    const std::size_t dot = key.rfind('.');
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("resume: [{}] {} is {} in the job, but {} in the checkpoint {}: it is of another job",
                            key.substr(0, dot), key.substr(dot + 1), value,
                            it == there.end() ? std::string("absent") : it->second, directory));
  }
  return {};
}

}  // namespace tarn::scheduler
