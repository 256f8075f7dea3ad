#include "server/checkpoint/checkpoint_base.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <span>
#include <vector>

#include "core/codec/manifest.h"
#include "core/crc32c.h"
#include "core/descriptor.h"
#include "core/file.h"

namespace tarn::server {

namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

// Any error of the base becomes kNotFound, after which the scheduler orders a full checkpoint (rule K7).
std::unexpected<Error> NoBase(const Error& error) { return Fail(ErrorCode::kNotFound, error.message); }

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return std::unexpected(Error{ErrorCode::kIo, SystemError(path, "write", errno).message});
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status Copy(const std::string& from, const std::string& to, const CheckpointFile& file) {
  const Descriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.get() < 0) return NoBase(SystemError(from, "open", errno));
  const Descriptor target(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (target.get() < 0) return Fail(ErrorCode::kIo, SystemError(to, "create", errno).message);
  std::vector<std::byte> piece(kCopyBytes);
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
  for (;;) {
    const ssize_t got = ::read(source.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return NoBase(SystemError(from, "read", errno));
    if (got == 0) break;
    const std::span<const std::byte> read(piece.data(), static_cast<std::size_t>(got));
    TARN_RETURN_IF_ERROR(WriteAll(target.get(), read, to));
    bytes += read.size();
    crc32c = Crc32c(read, crc32c);
  }
  if (bytes != file.bytes || crc32c != file.crc32c)
    return NoBase({ErrorCode::kCorrupt, fmt::format("{}: damaged: its CRC-32C over {} bytes is {:08x}, expected {:08x} "
                                                    "over {}",
                                                    from, bytes, crc32c, file.crc32c, file.bytes)});
  if (::fsync(target.get()) != 0) return Fail(ErrorCode::kIo, SystemError(to, "sync", errno).message);
  return {};
}

// Whether link() failed with a reason for which a copy may still work.
bool LinksDoNotWork(int error_number) {
  return error_number == EXDEV || error_number == EPERM || error_number == EMLINK || error_number == EOPNOTSUPP ||
         error_number == ENOSYS;
}

Status LinkOrCopy(const std::string& from, const std::string& to, const CheckpointFile& file) {
  // A shard that died while it wrote this checkpoint may have left the file.
  if (::unlink(to.c_str()) != 0 && errno != ENOENT)
    return Fail(ErrorCode::kIo, SystemError(to, "replace", errno).message);
  if (::link(from.c_str(), to.c_str()) == 0) return {};
  if (errno == ENOENT && ::access(from.c_str(), F_OK) != 0) return NoBase(SystemError(from, "link", ENOENT));
  if (LinksDoNotWork(errno)) return Copy(from, to, file);
  return Fail(ErrorCode::kIo, SystemError(to, "link", errno).message);
}

}  // namespace

Status LinkBaseFiles(const BaseShare& share, const std::string& directory) {
  const auto manifest = ReadManifest(share.base_directory);
  if (!manifest) return NoBase(manifest.error());
  if (manifest->id != share.base)
    return NoBase({ErrorCode::kCorrupt, fmt::format("{}/{}: of checkpoint {}, expected {}", share.base_directory,
                                                    kManifestName, manifest->id.value, share.base.value)});
  std::uint32_t index = 0;
  for (const Generation& generation : manifest->generations)
    for (const CheckpointFile& file : generation.files)
      if (file.seen == 0 && index++ % share.shards == share.shard.value % share.shards)
        TARN_RETURN_IF_ERROR(LinkOrCopy(share.base_directory + "/" + file.name, directory + "/" + file.name, file));
  return {};
}

}  // namespace tarn::server
