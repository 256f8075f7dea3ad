// Shows what happens if the disk is full or fails at any one operation while a checkpoint is written or read: the error
// names a path, the previous checkpoint is unchanged, and a partial checkpoint is never accepted as complete.
//
// This program replaces functions of the C library, for RocksDB and for our code alike: the n-th call of the selected
// kind fails.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <string_view>

#include "tests/unit/server/checkpoint/chain_fixture.h"

namespace {

enum class Hit { kNothing, kWriting, kReading, kLinks, kDirect };

std::atomic<Hit> hit{Hit::kNothing};
std::atomic<int> calls_left{0};  // before one fails
std::atomic<int> failing_errno{0};
std::atomic<int> failed{0};

// Whether this call fails.
bool Fails(Hit kind) {
  if (hit.load() != kind) return false;
  if (kind != Hit::kLinks && kind != Hit::kDirect && calls_left.fetch_sub(1) != 0) return false;
  ++failed;
  errno = failing_errno.load();
  return true;
}

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  const bool ours = std::string_view(path).find("tarn-chain-") != std::string_view::npos;
  if (ours && Fails((flags & (O_WRONLY | O_RDWR)) != 0 ? Hit::kWriting : Hit::kReading)) return -1;
  if (ours && (flags & O_DIRECT) != 0 && Fails(Hit::kDirect)) return -1;
  static const auto real = Real<int (*)(const char*, int, ...)>("open");
  return real(path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  if (fd > STDERR_FILENO && Fails(Hit::kWriting)) return -1;
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  return real(fd, bytes, count);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  if (Fails(Hit::kWriting)) return -1;
  static const auto real = Real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return real(fd, bytes, count, offset);
}

ssize_t read(int fd, void* bytes, size_t count) {
  if (fd > STDERR_FILENO && Fails(Hit::kReading)) return -1;
  if (hit == Hit::kDirect && (::fcntl(fd, F_GETFL) & O_DIRECT) != 0 && Fails(Hit::kDirect)) return -1;
  static const auto real = Real<ssize_t (*)(int, void*, size_t)>("read");
  return real(fd, bytes, count);
}

ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  if (Fails(Hit::kReading)) return -1;
  static const auto real = Real<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return real(fd, bytes, count, offset);
}

int fsync(int fd) {
  if (Fails(Hit::kWriting)) return -1;
  static const auto real = Real<int (*)(int)>("fsync");
  return real(fd);
}

int fdatasync(int fd) {
  if (Fails(Hit::kWriting)) return -1;
  static const auto real = Real<int (*)(int)>("fdatasync");
  return real(fd);
}

int ftruncate(int fd, off_t length) noexcept {
  if (Fails(Hit::kWriting)) return -1;
  static const auto real = Real<int (*)(int, off_t)>("ftruncate");
  return real(fd, length);
}

int rename(const char* from, const char* to) noexcept {
  if (Fails(Hit::kWriting)) return -1;
  static const auto real = Real<int (*)(const char*, const char*)>("rename");
  return real(from, to);
}

int link(const char* from, const char* to) noexcept {
  if (Fails(Hit::kWriting) || Fails(Hit::kLinks)) return -1;
  static const auto real = Real<int (*)(const char*, const char*)>("link");
  return real(from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (Fails(Hit::kWriting)) return -1;
  static const auto real = Real<int (*)(const char*, mode_t)>("mkdir");
  return real(path, mode);
}

}  // extern "C"

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

class CheckpointFaultsTest : public ChainFixture {
 protected:
  void SetUp() override {
    SplitMix random(12);
    bits_ = 1;
    keys_ = 2000;
    Change(&random, 300);
    ASSERT_TRUE(Cut(1, 0, 2, &random));
    before_ = state_;
    Change(&random, 700);
    run_bytes_ = 400;  // many files, and with them many operations
  }
  void TearDown() override { hit = Hit::kNothing; }

  // Runs `step` with its n-th operation failing, for every n, until none fails any more. Returns how many did.
  template <typename Step>
  int EachOperation(Hit kind, int error_number, Step step) {
    for (int n = 0;; ++n) {
      failed = 0;
      calls_left = n;
      failing_errno = error_number;
      hit = kind;
      auto result = step();
      hit = Hit::kNothing;
      if (failed == 0) {
        EXPECT_TRUE(result);
        return n;
      }
      Check(n, error_number, std::move(result));
      if (HasFatalFailure() || n > 5000) return n;
    }
  }

  // After a checkpoint that failed, or that succeeded in spite of the fault.
  void Check(int n, int error_number, const Status& cut) {
    if (!cut) {
      EXPECT_NE(cut.error().message.find(root_.string()), std::string::npos) << n << ": " << cut.error().message;
      EXPECT_TRUE(cut.error().code == ErrorCode::kIo || cut.error().code == ErrorCode::kNotFound)
          << n << ": " << ToString(cut.error());
    }
    const auto old = Read(1);
    ASSERT_TRUE(old) << n << ", errno " << error_number << ": " << old.error().message;
    ASSERT_EQ(*old, before_) << n;
    // Without a manifest there is no checkpoint. With one it is complete: the sync of the folder, which follows the
    // manifest, may have failed.
    if (ReadManifest(Directory(2))) {
      ASSERT_EQ(Read(2).value(), state_) << n;
    }
    fs::remove_all(Directory(2));
  }
  void Check(int n, int error_number, const Expected<State>& read) {
    if (read) {
      ASSERT_EQ(*read, state_) << n;
      return;
    }
    EXPECT_NE(read.error().message.find(Directory(2)), std::string::npos) << n << ": " << read.error().message;
    EXPECT_EQ(read.error().code, ErrorCode::kIo) << n << ", errno " << error_number << ": " << ToString(read.error());
  }

  Status CutWithBase() {
    SplitMix random(13);
    const auto changed = changed_;
    const Status cut = Cut(2, 1, 2, &random);
    changed_ = changed;
    return cut;
  }

  State before_;
};

TEST_F(CheckpointFaultsTest, WritingFailsAtEveryOperation) {
  for (const int error_number : {ENOSPC, EIO}) {
    const int operations = EachOperation(Hit::kWriting, error_number, [&] { return CutWithBase(); });
    EXPECT_GT(operations, 80);  // RocksDB's are among them
    RecordProperty("operations", operations);
    EXPECT_EQ(Read(2).value(), state_);
    fs::remove_all(Directory(2));
  }
}

TEST_F(CheckpointFaultsTest, ReadingFailsAtEveryOperation) {
  ASSERT_TRUE(CutWithBase());
  const int operations = EachOperation(Hit::kReading, EIO, [&] { return Read(2); });
  EXPECT_GT(operations, 100);
  RecordProperty("operations", operations);
}

TEST_F(CheckpointFaultsTest, IfLinksFailTheBaseIsCopied) {
  for (const int error_number : {EXDEV, EPERM, EMLINK, EOPNOTSUPP}) {
    failing_errno = error_number;
    hit = Hit::kLinks;
    const Status cut = CutWithBase();
    hit = Hit::kNothing;
    ASSERT_TRUE(cut) << cut.error().message;
    EXPECT_EQ(Read(2).value(), state_);
    for (const CheckpointFile& file : manifests_[2].generations[0].files)
      EXPECT_EQ(fs::hard_link_count(fs::path(Directory(2)) / file.name), 1u);
    fs::remove_all(Directory(2));
  }
}

TEST_F(CheckpointFaultsTest, WithoutDirectIoFilesGoThroughThePageCache) {
  failed = 0;
  failing_errno = EINVAL;
  hit = Hit::kDirect;
  const Status cut = CutWithBase();
  hit = Hit::kNothing;
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(Read(2).value(), state_);
  // Each new file was first opened with O_DIRECT, once to write and once to read.
  EXPECT_GE(failed, 2 * static_cast<int>(manifests_[2].generations.back().files.size()));
}

}  // namespace
}  // namespace tarn::server
