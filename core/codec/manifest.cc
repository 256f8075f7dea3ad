#include "core/codec/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/file.h"
#include "core/hash.h"
#include "core/limits.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

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
    return Fail(ErrorCode::kCorrupt, fmt::format("{}/{}: invalid file name '{}'", directory, kManifestName, file.name));
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
  for (const WorkerBlob& blob : manifest.blobs) TARN_RETURN_IF_ERROR(CheckFile(directory, blob.file));
  return {};
}

}  // namespace

std::uint64_t Generation::bytes() const {
  std::uint64_t sum = 0;
  for (const CheckpointFile& file : files) sum += file.bytes;
  return sum;
}

std::uint64_t FilesHash(const Manifest& manifest) {
  std::uint64_t hash = manifest.partition_bits;
  for (const Generation& generation : manifest.generations) {
    hash = HashCombine(hash, generation.id.value);
    for (const CheckpointFile& file : generation.files)
      hash = HashBytes(fmt::format("{} {} {}", file.name, file.bytes, file.crc32c), hash);
  }
  return hash;
}

std::optional<CheckpointId> CheckpointIdOf(const std::string& directory) {
  constexpr std::string_view kPrefix = "ckpt-";
  fs::path path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix) || name[kPrefix.size()] == '0') return std::nullopt;
  std::uint64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kPrefix.size(), end, number);
  if (error != std::errc() || stopped != end || number > limits::kCheckpointIdMax) return std::nullopt;
  return CheckpointId(number);
}

Status WriteManifest(const std::string& directory, const Manifest& manifest) {
  const std::string path = directory + "/" + kManifestName;
  std::size_t files = 0;
  for (const Generation& generation : manifest.generations) files += generation.files.size();
  files += manifest.blobs.size();
  if (files > limits::kManifestFilesMax)
    return Fail(ErrorCode::kTooLarge,
                fmt::format("{}: {} files, expected at most {}", path, files, limits::kManifestFilesMax));
  TARN_RETURN_IF_ERROR(CheckFiles(directory, manifest));
  // The shards' files are durable. Syncing the directory makes their names durable before the manifest refers to them.
  if (fs::path parent = fs::path(directory).parent_path(); !parent.empty())
    TARN_RETURN_IF_ERROR(SyncDirectory(parent.string()));
  TARN_RETURN_IF_ERROR(SyncDirectory(directory));
  const std::string bytes = EncodeManifest(manifest);
  if (bytes.size() > limits::kManifestBytesMax)
    return Fail(ErrorCode::kTooLarge,
                fmt::format("{}: {} bytes, expected at most {}", path, bytes.size(), limits::kManifestBytesMax));
  return WriteFileAtomic(path, bytes);
}

Expected<Manifest> ReadManifest(const std::string& directory) {
  const std::string path = directory + "/" + kManifestName;
  // Opening a pipe would wait for its other end.
  std::error_code ignored;
  if (const auto type = fs::status(path, ignored).type();
      type != fs::file_type::not_found && type != fs::file_type::regular)
    return Fail(ErrorCode::kIo, fmt::format("{}: expected a regular file", path));
  auto bytes = ReadFile(path, limits::kManifestBytesMax);
  if (!bytes) {
    if (bytes.error().code != ErrorCode::kNotFound) return std::unexpected(bytes.error());
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}: not found: a directory without it is not a complete checkpoint", path));
  }
  auto manifest = DecodeManifest(*bytes, path);
  if (!manifest) return manifest;
  const auto id = CheckpointIdOf(directory);
  if (id && *id != manifest->id)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: belongs to checkpoint {}, expected {} as in the directory's name",
                                                 path, manifest->id.value, id->value));
  if (manifest->generations.empty() || manifest->generations.back().id != manifest->id)
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}: its last generation is not checkpoint {}", path, manifest->id.value));
  TARN_RETURN_IF_ERROR(CheckFiles(directory, *manifest));
  return manifest;
}

Expected<std::vector<CheckpointDirectory>> ListCheckpoints(const std::string& run_dir) {
  const fs::path root = fs::path(run_dir) / "checkpoints";
  std::error_code error;
  std::vector<CheckpointDirectory> found;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const auto id = CheckpointIdOf(it->path().string());
    if (!id) continue;
    // A manifest that cannot be examined counts as present, because directories without one are removed as incomplete.
    std::error_code ignored;
    const bool has_manifest = fs::status(it->path() / kManifestName, ignored).type() != fs::file_type::not_found;
    found.push_back({*id, it->path().string(), has_manifest});
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
  return Fail(ErrorCode::kNotFound, fmt::format("{}/checkpoints: no complete checkpoint", run_dir));
}

}  // namespace tarn
