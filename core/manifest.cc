#include "core/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "core/file.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kManifestBytesMax = std::size_t{512} << 20;

// A name that stays inside its directory.
bool IsPlainName(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute()) return false;
  for (const fs::path& part : path)
    if (part == "..") return false;
  return true;
}

Status CheckFile(const std::string& directory, const CheckpointFile& file) {
  const std::string path = directory + "/" + file.name;
  if (!IsPlainName(file.name))
    return Fail(ErrorCode::kCorrupt, fmt::format("{}/{}: it names the file '{}'", directory, kManifestName, file.name));
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error)
    return Fail(ErrorCode::kNotFound, fmt::format("{}: cannot read its size: {}; the checkpoint needs this file of {} "
                                                  "bytes",
                                                  path, error.message(), file.bytes));
  if (bytes != file.bytes)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: {} bytes, expected {}", path, bytes, file.bytes));
  return {};
}

Status CheckFiles(const std::string& directory, const Manifest& manifest) {
  for (const Generation& generation : manifest.generations)
    for (const CheckpointFile& file : generation.files) TARN_RETURN_IF_ERROR(CheckFile(directory, file));
  return {};
}

// The number of "ckpt-<number>".
std::optional<std::uint64_t> NumberOf(const std::string& name) {
  constexpr std::string_view kPrefix = "ckpt-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kPrefix.size(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

}  // namespace

std::uint64_t Generation::bytes() const {
  std::uint64_t sum = 0;
  for (const CheckpointFile& file : files) sum += file.bytes;
  return sum;
}

Status WriteManifest(const std::string& directory, const Manifest& manifest) {
  TARN_RETURN_IF_ERROR(CheckFiles(directory, manifest));
  // The shards' files are durable; their names become so with the directory, before the manifest speaks of them.
  if (fs::path parent = fs::path(directory).parent_path(); !parent.empty())
    TARN_RETURN_IF_ERROR(SyncDirectory(parent.string()));
  TARN_RETURN_IF_ERROR(SyncDirectory(directory));
  return WriteFileAtomic(directory + "/" + kManifestName, EncodeManifest(manifest));
}

Expected<Manifest> ReadManifest(const std::string& directory) {
  const std::string path = directory + "/" + kManifestName;
  auto bytes = ReadFile(path, kManifestBytesMax);
  if (!bytes) {
    if (bytes.error().code != ErrorCode::kNotFound) return std::unexpected(bytes.error());
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}: not there: a directory without it is not a whole checkpoint", path));
  }
  auto manifest = DecodeManifest(*bytes, path);
  if (!manifest) return manifest;
  fs::path name = fs::path(directory).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  const auto number = NumberOf(name.filename().string());
  if (number && *number != manifest->id.value)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: it is of checkpoint {}, expected {} as its directory is called",
                                                 path, manifest->id.value, *number));
  if (manifest->generations.empty() || manifest->generations.back().id != manifest->id)
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}: its chain does not end with checkpoint {}", path, manifest->id.value));
  TARN_RETURN_IF_ERROR(CheckFiles(directory, *manifest));
  return manifest;
}

Expected<std::vector<CheckpointDirectory>> ListCheckpoints(const std::string& run_dir) {
  const fs::path root = fs::path(run_dir) / "checkpoints";
  std::error_code error;
  std::vector<CheckpointDirectory> found;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const auto number = NumberOf(it->path().filename().string());
    if (!number) continue;
    std::error_code ignored;
    found.push_back({CheckpointId(*number), it->path().string(), fs::exists(it->path() / kManifestName, ignored)});
  }
  if (error) return Fail(ErrorCode::kNotFound, fmt::format("{}: cannot be read: {}", root.string(), error.message()));
  std::ranges::sort(found, {}, &CheckpointDirectory::id);
  return found;
}

Expected<std::string> FindNewestCheckpoint(const std::string& run_dir) {
  const auto all = ListCheckpoints(run_dir);
  if (!all) return std::unexpected(all.error());
  for (auto it = all->rbegin(); it != all->rend(); ++it)
    if (it->has_manifest) return it->path;
  return Fail(ErrorCode::kNotFound, fmt::format("{}/checkpoints: no whole checkpoint in it", run_dir));
}

}  // namespace tarn
