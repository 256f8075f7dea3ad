#include "server/log/file_ops.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/file.h"

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPartsMax = 512;  // of one system call; Linux takes 1024

std::unexpected<Error> Failed(const std::string& path, const char* what) {
  return std::unexpected(SystemError(path, what, errno));
}

class PosixFile final : public LogFile {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile() override { ::close(fd_); }

  Status Write(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) override {
    std::vector<iovec> left;
    left.reserve(parts.size());
    for (const auto& part : parts)
      if (!part.empty()) left.push_back({const_cast<std::byte*>(part.data()), part.size()});
    for (std::size_t i = 0; i < left.size();) {
      const auto count = static_cast<int>(std::min(left.size() - i, kPartsMax));
      const ssize_t got = ::pwritev(fd_, &left[i], count, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Failed(path_, "write");
      auto written = static_cast<std::size_t>(got);
      offset += written;
      for (; i < left.size() && written >= left[i].iov_len; ++i) written -= left[i].iov_len;
      if (written == 0) continue;
      left[i].iov_base = static_cast<std::byte*>(left[i].iov_base) + written;
      left[i].iov_len -= written;
    }
    return {};
  }

  Status Sync() override {
    if (::fdatasync(fd_) != 0) return Failed(path_, "sync");
    return {};
  }

  // A file system that cannot reserve (EOPNOTSUPP) still gets the length.
  Status Allocate(std::uint64_t bytes) override {
    const int error = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
    if (error == EOPNOTSUPP || error == EINVAL) return Truncate(bytes);
    if (error != 0) return std::unexpected(SystemError(path_, "reserve room for", error));
    return {};
  }

  Status Truncate(std::uint64_t bytes) override {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return Failed(path_, "set the length of");
    return {};
  }

  Expected<std::size_t> Read(std::uint64_t offset, std::span<std::byte> out) override {
    std::size_t read = 0;
    while (read < out.size()) {
      const ssize_t got = ::pread(fd_, out.data() + read, out.size() - read, static_cast<off_t>(offset + read));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Failed(path_, "read");
      if (got == 0) break;
      read += static_cast<std::size_t>(got);
    }
    return read;
  }

  Expected<std::uint64_t> Size() override {
    struct stat about;
    if (::fstat(fd_, &about) != 0) return Failed(path_, "find the size of");
    return static_cast<std::uint64_t>(about.st_size);
  }

 private:
  int fd_;
  std::string path_;
};

class PosixLock final : public LogLock {
 public:
  explicit PosixLock(FileLock lock) : lock_(std::move(lock)) {}

 private:
  FileLock lock_;
};

class PosixFileOps final : public FileOps {
 public:
  Expected<std::unique_ptr<LogFile>> Create(const std::string& path) override {
    return Open(path, O_RDWR | O_CREAT | O_EXCL, "create");
  }
  Expected<std::unique_ptr<LogFile>> OpenToRead(const std::string& path) override {
    return Open(path, O_RDONLY, "open");
  }
  Expected<std::unique_ptr<LogFile>> OpenToWrite(const std::string& path) override {
    return Open(path, O_RDWR, "open");
  }
  Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return Failed(path, "remove");
    return {};
  }
  Status MakeDirectory(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) return Fail(ErrorCode::kIo, fmt::format("{}: cannot make this folder: {}", path, error.message()));
    return {};
  }
  Expected<std::vector<std::string>> List(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
      names.push_back(it->path().filename().string());
    if (error) return std::unexpected(SystemError(path, "read", error.value()));
    std::ranges::sort(names);
    return names;
  }
  Status SyncDirectory(const std::string& path) override { return tarn::SyncDirectory(path); }
  Expected<std::unique_ptr<LogLock>> Lock(const std::string& path) override {
    auto lock = FileLock::Take(path, "another process holds this log: does a server of this run still live?");
    if (!lock) return std::unexpected(lock.error());
    return std::make_unique<PosixLock>(*std::move(lock));
  }

 private:
  static Expected<std::unique_ptr<LogFile>> Open(const std::string& path, int flags, const char* what) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    if (fd < 0) return Failed(path, what);
    return std::make_unique<PosixFile>(fd, path);
  }
};

}  // namespace

std::unique_ptr<FileOps> MakeFileOps() { return std::make_unique<PosixFileOps>(); }

}  // namespace tarn::server
