#include "core/manifest.h"

#include <fmt/format.h>

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

Status WriteManifest(const std::string& directory, const Manifest& manifest) {
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
  for (const CheckpointFile& file : manifest->files) TARN_RETURN_IF_ERROR(CheckFile(directory, file));
  return manifest;
}

Expected<std::string> FindNewestCheckpoint(const std::string& run_dir) {
  const fs::path root = fs::path(run_dir) / "checkpoints";
  std::error_code error;
  std::optional<std::uint64_t> newest;
  std::string path;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const auto number = NumberOf(it->path().filename().string());
    if (!number || (newest && *number < *newest)) continue;
    std::error_code ignored;
    if (!fs::exists(it->path() / kManifestName, ignored)) continue;
    newest = number;
    path = it->path().string();
  }
  if (error) return Fail(ErrorCode::kNotFound, fmt::format("{}: cannot be read: {}", root.string(), error.message()));
  if (!newest) return Fail(ErrorCode::kNotFound, fmt::format("{}: no whole checkpoint in it", root.string()));
  return path;
}

}  // namespace tarn
