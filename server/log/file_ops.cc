#include "server/log/file_ops.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "core/descriptor.h"
#include "core/file.h"

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPartsMax = 512;  // of one system call; Linux accepts 1024

std::unexpected<Error> Failed(const std::string& path, const char* what) {
  return std::unexpected(SystemError(path, what, errno));
}

struct FreeDeleter {
  void operator()(std::byte* memory) const { std::free(memory); }
};

class PosixFile final : public LogFile {
 public:
  // `direct`: opened with O_DIRECT; invalid if the file system does not support that.
  PosixFile(Descriptor fd, Descriptor direct, std::string path)
      : fd_(std::move(fd)), direct_(std::move(direct)), path_(std::move(path)) {}

  Status Write(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) override {
    std::uint64_t bytes = 0;
    for (const auto& part : parts) bytes += part.size();
    return direct_.get() >= 0 && offset % kPage == 0 && bytes % kPage == 0 ? WriteDirect(offset, parts)
                                                                           : WriteCached(offset, parts);
  }

  Status Sync() override {
    if (::fdatasync(fd_.get()) != 0) return Failed(path_, "sync");
    return {};
  }

  Status WriteZeros(std::uint64_t offset, std::uint64_t bytes) override {
    const std::vector<std::byte> zeros(std::min<std::uint64_t>(bytes, kStagedBytes));
    for (const std::uint64_t end = offset + bytes; offset < end;) {
      const std::span<const std::byte> part[] = {std::span(zeros).first(std::min(end - offset, zeros.size()))};
      TARN_RETURN_IF_ERROR(Write(offset, part));
      offset += part[0].size();
    }
    return Sync();
  }

  // A failed reservation may have used all space that was left; Truncate frees it.
  Expected<std::uint64_t> Allocate(std::uint64_t bytes, std::uint64_t least) override {
    const int error = Reserve(bytes);
    if (error == 0) return bytes;
    if ((error != ENOSPC && error != EDQUOT) || least >= bytes) return CannotReserve(error);
    TARN_RETURN_IF_ERROR(Truncate(least));
    if (const int again = Reserve(least); again != 0) return CannotReserve(again);
    return least;
  }

  Status Truncate(std::uint64_t bytes) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) return Failed(path_, "set the file size");
    return {};
  }

  Expected<std::size_t> Read(std::uint64_t offset, std::span<std::byte> out) override {
    std::size_t read = 0;
    while (read < out.size()) {
      const ssize_t got = ::pread(fd_.get(), out.data() + read, out.size() - read, static_cast<off_t>(offset + read));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Failed(path_, "read");
      if (got == 0) break;
      read += static_cast<std::size_t>(got);
    }
    return read;
  }

  Expected<std::uint64_t> Size() override {
    struct stat about;
    if (::fstat(fd_.get(), &about) != 0) return Failed(path_, "read the file size");
    return static_cast<std::uint64_t>(about.st_size);
  }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kStagedBytes = std::size_t{1} << 20;

  // Returns an errno, or 0. If the file system cannot reserve space, only sets the length of the file.
  int Reserve(std::uint64_t bytes) {
    // Not posix_fallocate: where the file system cannot reserve space, glibc's writes into each block of the file.
    int failed = 0;
    do failed = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes));
    while (failed != 0 && errno == EINTR);
    if (failed == 0) return 0;
    if (errno != EOPNOTSUPP && errno != EINVAL) return errno;
    return ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }

  std::unexpected<Error> CannotReserve(int error) const {
    return std::unexpected(SystemError(path_, "reserve disk space", error));
  }

  Status WriteCached(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) {
    std::vector<iovec> left;
    left.reserve(parts.size());
    for (const auto& part : parts)
      if (!part.empty()) left.push_back({const_cast<std::byte*>(part.data()), part.size()});
    for (std::size_t i = 0; i < left.size();) {
      const auto count = static_cast<int>(std::min(left.size() - i, kPartsMax));
      const ssize_t got = ::pwritev(fd_.get(), &left[i], count, static_cast<off_t>(offset));
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

  // Writes through a buffer with the alignment that the device requires.
  Status WriteDirect(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) {
    if (!staged_) staged_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, kStagedBytes)));
    if (!staged_) throw std::bad_alloc();
    std::size_t filled = 0;
    for (auto part : parts) {
      while (!part.empty()) {
        const std::size_t n = std::min(part.size(), kStagedBytes - filled);
        std::memcpy(staged_.get() + filled, part.data(), n);
        part = part.subspan(n);
        filled += n;
        if (filled < kStagedBytes) continue;
        TARN_RETURN_IF_ERROR(WriteStaged(offset, filled));
        offset += std::exchange(filled, 0);
      }
    }
    return WriteStaged(offset, filled);
  }

  // Bytes that the device does not accept directly are written through the page cache.
  Status WriteStaged(std::uint64_t offset, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes && done % kPage == 0) {
      const ssize_t got =
          ::pwrite(direct_.get(), staged_.get() + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EINVAL) break;
      if (got < 0) return Failed(path_, "write");
      done += static_cast<std::size_t>(got);
    }
    if (done == bytes) return {};
    const std::span<const std::byte> rest[] = {std::span(staged_.get() + done, bytes - done)};
    return WriteCached(offset + done, rest);
  }

  Descriptor fd_, direct_;
  std::string path_;
  std::unique_ptr<std::byte, FreeDeleter> staged_;
};

class PosixLock final : public LogLock {
 public:
  explicit PosixLock(FileLock lock) : lock_(std::move(lock)) {}

 private:
  FileLock lock_;
};

class PosixFileOps final : public FileOps {
 public:
  explicit PosixFileOps(std::chrono::milliseconds lock_timeout) : lock_timeout_(lock_timeout) {}
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
  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return Failed(from, "rename");
    return {};
  }
  Status MakeDirectory(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) return Fail(ErrorCode::kIo, fmt::format("{}: cannot create this folder: {}", path, error.message()));
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
    auto lock =
        FileLock::Take(path, "another process holds this log: is a server of this run still alive?", lock_timeout_);
    if (!lock) return std::unexpected(lock.error());
    return std::make_unique<PosixLock>(*std::move(lock));
  }

 private:
  static Expected<std::unique_ptr<LogFile>> Open(const std::string& path, int flags, const char* what) {
    Descriptor fd(::open(path.c_str(), flags | O_CLOEXEC, 0644));
    if (fd.get() < 0) return Failed(path, what);
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    Descriptor direct(writes ? ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC) : -1);
    return std::make_unique<PosixFile>(std::move(fd), std::move(direct), path);
  }

  std::chrono::milliseconds lock_timeout_;
};

}  // namespace

std::unique_ptr<FileOps> MakeFileOps(std::chrono::milliseconds lock_timeout) {
  return std::make_unique<PosixFileOps>(lock_timeout);
}

}  // namespace tarn::server
