#include "core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace tarn {
namespace {

// Closes at the end of the scope; Close() is for the writer, who must see its error.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int Close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

std::unexpected<Error> Failed(std::string_view path, std::string_view what) {
  return std::unexpected(SystemError(path, what, errno));
}

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path, "write");
    bytes = bytes.subspan(std::size_t(written));
  }
  return {};
}

Status WriteAndSync(const std::string& path, std::span<const std::byte> bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return Failed(path, "create");
  TARN_RETURN_IF_ERROR(WriteAll(file.get(), bytes, path));
  if (::fsync(file.get()) != 0) return Failed(path, "sync");
  if (file.Close() != 0) return Failed(path, "close");
  return {};
}

}  // namespace

Error SystemError(std::string_view path, std::string_view what, int error_number) {
  const auto code = error_number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return {code, fmt::format("{}: cannot {}: {}", path, what, std::generic_category().message(error_number))};
}

Expected<std::string> ReadFile(const std::string& path, std::size_t bytes_max) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return Failed(path, "open");
  std::string bytes;
  for (;;) {
    constexpr std::size_t kPiece = 64 << 10;
    const std::size_t had = bytes.size();
    bytes.resize(had + kPiece);
    const ssize_t got = ::read(file.get(), bytes.data() + had, kPiece);
    if (got < 0 && errno != EINTR) return Failed(path, "read");
    bytes.resize(had + std::size_t(got < 0 ? 0 : got));
    if (bytes.size() > bytes_max)
      return Fail(ErrorCode::kTooLarge, fmt::format("{}: more than {} bytes", path, bytes_max));
    if (got == 0) return bytes;
  }
}

Status WriteFileAtomic(const std::string& path, std::span<const std::byte> bytes) {
  const std::string beside = fmt::format("{}.tmp-{}", path, ::getpid());
  Status written = WriteAndSync(beside, bytes);
  if (written && ::rename(beside.c_str(), path.c_str()) != 0) written = Failed(path, "rename into place");
  if (!written) {
    ::unlink(beside.c_str());
    return written;
  }
  return SyncDirectory(std::filesystem::path(path).parent_path().string());
}

Status SyncDirectory(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  Descriptor folder(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return Failed(name, "open");
  // Some file systems cannot sync a folder and say EINVAL; they order renames themselves.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) return Failed(name, "sync");
  return {};
}

}  // namespace tarn
