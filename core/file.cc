#include "core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tarn {
namespace {

// Closes at the end of the scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::unexpected<Error> Failed(std::string_view path, std::string_view what) {
  return std::unexpected(SystemError(path, what, errno));
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

AtomicFile::AtomicFile(std::string path, std::string beside, int fd)
    : path_(std::move(path)), beside_(std::move(beside)), fd_(fd) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), beside_(std::move(other.beside_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(beside_, other.beside_);
  std::swap(fd_, other.fd_);
  return *this;
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(beside_.c_str());
}

Expected<AtomicFile> AtomicFile::Create(const std::string& path) {
  std::string beside = fmt::format("{}.tmp-{}", path, ::getpid());
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(beside, "create");
  return AtomicFile(path, std::move(beside), fd);
}

Status AtomicFile::WriteAt(std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(beside_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

// What is beside it goes away with any error but the last.
Status AtomicFile::Commit() {
  if (::fsync(fd_) != 0) return Failed(beside_, "sync");
  if (::rename(beside_.c_str(), path_.c_str()) != 0) return Failed(path_, "rename into place");
  if (::close(std::exchange(fd_, -1)) != 0) return Failed(path_, "close");
  return SyncDirectory(std::filesystem::path(path_).parent_path().string());
}

Status WriteFileAtomic(const std::string& path, std::span<const std::byte> bytes) {
  auto file = AtomicFile::Create(path);
  if (!file) return std::unexpected(file.error());
  TARN_RETURN_IF_ERROR(file->WriteAt(bytes, 0));
  return file->Commit();
}

Expected<FileLock> FileLock::Take(const std::string& path, std::string_view held) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(path, "open");
  FileLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return Failed(path, "lock");
  return Fail(ErrorCode::kUnavailable, fmt::format("{}: {}", path, held));
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
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
