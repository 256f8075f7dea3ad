#include "core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "core/descriptor.h"

namespace tarn {
namespace {

constexpr std::string_view kTemporaryInfix = ".tmp-";

// The path by which this process can name an open file.
std::string PathOf(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

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
    const std::size_t size = bytes.size();
    bytes.resize(size + kPiece);
    const ssize_t count = ::read(file.get(), bytes.data() + size, kPiece);
    if (count < 0 && errno != EINTR) return Failed(path, "read");
    bytes.resize(size + std::size_t(count < 0 ? 0 : count));
    if (bytes.size() > bytes_max)
      return Fail(ErrorCode::kTooLarge, fmt::format("{}: more than {} bytes", path, bytes_max));
    if (count == 0) return bytes;
  }
}

AtomicFile::AtomicFile(std::string path, std::string temporary_path, Descriptor file, bool named)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), file_(std::move(file)), named_(named) {}

AtomicFile::~AtomicFile() {
  if (file_.get() >= 0 && named_) ::unlink(temporary_path_.c_str());
}

Expected<AtomicFile> AtomicFile::Create(const std::string& path) {
  std::string temporary_path = fmt::format("{}{}{}", path, kTemporaryInfix, ::getpid());
  const std::string folder = std::filesystem::path(path).parent_path().string();
  Descriptor unnamed(::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644));
  // Not every file system supports unnamed files, and naming them requires /proc.
  if (unnamed.get() >= 0 && ::access(PathOf(unnamed.get()).c_str(), F_OK) == 0)
    return AtomicFile(path, std::move(temporary_path), std::move(unnamed), false);
  Descriptor named(::open(temporary_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (named.get() < 0) return Failed(temporary_path, "create");
  return AtomicFile(path, std::move(temporary_path), std::move(named), true);
}

Status AtomicFile::WriteAt(std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

// After an error before or at the rename, the destructor removes the temporary file.
Status AtomicFile::Commit() {
  if (::fsync(file_.get()) != 0) return Failed(path_, "sync");
  if (!named_) {
    ::unlink(temporary_path_.c_str());  // left by an earlier process with the same id
    if (::linkat(AT_FDCWD, PathOf(file_.get()).c_str(), AT_FDCWD, temporary_path_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return Failed(temporary_path_, "create");
    named_ = true;
  }
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) return Failed(path_, "rename into place");
  if (::close(file_.Release()) != 0) return Failed(path_, "close");
  return SyncDirectory(std::filesystem::path(path_).parent_path().string());
}

void RemoveUnfinished(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string prefix = std::filesystem::path(path).filename().string() + std::string(kTemporaryInfix);
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || name.find_first_not_of("0123456789", prefix.size()) != std::string::npos) continue;
    ::unlink(it->path().c_str());
  }
}

Status WriteFileAtomic(const std::string& path, std::span<const std::byte> bytes) {
  auto file = AtomicFile::Create(path);
  if (!file) return std::unexpected(file.error());
  TARN_RETURN_IF_ERROR(file->WriteAt(bytes, 0));
  return file->Commit();
}

Expected<FileLock> FileLock::Take(const std::string& path, std::string_view held, std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kStep(20);
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (file.get() < 0) return Failed(path, "open");
  for (std::chrono::milliseconds waited(0);; waited += kStep) {
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return FileLock(std::move(file));
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Failed(path, "lock");
    if (waited >= timeout) return Fail(ErrorCode::kUnavailable, fmt::format("{}: {}", path, held));
    std::this_thread::sleep_for(kStep);
  }
}

Status SyncDirectory(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  Descriptor folder(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return Failed(name, "open");
  // Some file systems cannot sync a directory and return EINVAL; they order renames themselves.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) return Failed(name, "sync");
  return {};
}

}  // namespace tarn
