// Verifies files of a checkpoint: compares their sizes and checksums with the manifest.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "core/crc32c.h"
#include "core/file.h"
#include "server/checkpoint/checkpoint_rows.h"
#include "server/checkpoint/file_sum.h"

namespace tarn::server {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// O_DIRECT requires a buffer that is aligned to blocks.
struct alignas(4096) Page {
  std::byte bytes[4096];
};

// Sets or clears O_DIRECT. Returns whether it is set; some file systems do not support it.
bool SetDirect(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  return ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 && direct;
}

// The end of an error message: names the other checkpoints that contain this file as a hard link, because they are
// damaged too. Empty: there are none.
std::string SharedBy(const std::string& path) {
  const fs::path file = fs::absolute(path).lexically_normal();
  const fs::path here = file.parent_path();
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(here.parent_path(), error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path() != here && fs::equivalent(it->path() / file.filename(), file, ignored))
      names.push_back(it->path().filename().string());
  }
  std::ranges::sort(names);
  return names.empty() ? "" : fmt::format("; the same file is in {}", fmt::join(names, ", "));
}

}  // namespace

Expected<FileSum> SumFile(const std::string& path, bool sync, const std::function<void(std::uint64_t)>& progress) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::unexpected(SystemError(path, "open", errno));
  bool direct = sync && SetDirect(fd, true);
  std::vector<Page> piece(kReadBytes / sizeof(Page));
  FileSum sum;
  ssize_t n = 0;
  while ((n = ::read(fd, piece.data(), kReadBytes)) > 0 || (n < 0 && (errno == EINTR || (errno == EINVAL && direct)))) {
    if (n < 0 && errno == EINVAL) direct = SetDirect(fd, false);
    if (n < 0) continue;
    sum.bytes += static_cast<std::uint64_t>(n);
    sum.crc32c = Crc32c(std::as_bytes(std::span(piece)).first(static_cast<std::size_t>(n)), sum.crc32c);
    if (progress) progress(static_cast<std::uint64_t>(n));
  }
  int failure = n < 0 ? errno : 0;
  if (failure == 0 && sync && ::fsync(fd) != 0) failure = errno;
  ::close(fd);
  if (failure != 0) return std::unexpected(SystemError(path, "read or sync", failure));
  return sum;
}

Status VerifyFile(const std::string& path, const CheckpointFile& file,
                  const std::function<void(std::uint64_t)>& progress) {
  const auto sum = SumFile(path, false, progress);
  if (!sum) return std::unexpected(sum.error());
  if (sum->bytes != file.bytes)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: {} bytes, expected {}", path, sum->bytes, file.bytes));
  if (sum->crc32c != file.crc32c)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: damaged: its CRC-32C is {:08x}, expected {:08x}{}", path,
                                                 sum->crc32c, file.crc32c, SharedBy(path)));
  return {};
}

Status VerifyFiles(const std::string& directory, const Manifest& manifest,
                   const std::function<bool(const CheckpointFile&)>& wanted,
                   const std::function<void(std::uint64_t)>& progress) {
  for (const Generation& generation : manifest.generations)
    for (const CheckpointFile& file : generation.files)
      if (wanted(file)) TARN_RETURN_IF_ERROR(VerifyFile(directory + "/" + file.name, file, progress));
  return {};
}

}  // namespace tarn::server
