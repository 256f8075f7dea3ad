// Whole files, read and written. Every error names the path and the system's reason.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/descriptor.h"
#include "core/error.h"

namespace tarn {

// The bytes of a file. kNotFound if it is not there, kTooLarge beyond bytes_max, kIo otherwise.
Expected<std::string> ReadFile(const std::string& path, std::size_t bytes_max);

// Replaces `path` by `bytes` so that a reader, and a machine that loses power, sees the old file or the new one,
// never a part: writes beside it, fsyncs, renames, fsyncs the folder. kIo (kNotFound: no such folder); the old file is
// then untouched, unless only the last fsync failed. Concurrent writers of one path must be in different processes.
Status WriteFileAtomic(const std::string& path, std::span<const std::byte> bytes);

inline Status WriteFileAtomic(const std::string& path, std::string_view text) {
  return WriteFileAtomic(path, std::as_bytes(std::span(text.data(), text.size())));
}

// A file that is written piece by piece and takes its place at once: until Commit it has no name, and without a Commit
// it goes away, however the process ends. Where the file system has no such files it lies beside, as PATH.tmp-PID, and
// a process that is killed leaves it. Errors as above. Not thread-safe.
class AtomicFile {
 public:
  static Expected<AtomicFile> Create(const std::string& path);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) = default;
  AtomicFile& operator=(AtomicFile&&) = delete;

  // All of `bytes` at `offset`, which may be written before or beyond the end.
  Status WriteAt(std::span<const std::byte> bytes, std::uint64_t offset);
  // Durable, and in the place of what was there. Once.
  Status Commit();

 private:
  AtomicFile(std::string path, std::string beside, Descriptor file, bool named);

  std::string path_, beside_;
  Descriptor file_;
  bool named_;  // beside_ is there
};

// A process that was killed gives its memory back before its files: with much of it, its locks go so late.
inline constexpr std::chrono::milliseconds kLockPatience{10'000};

// A file that is held by one process at a time: until the lock goes, or the process. The file stays. `held` says what
// it means that another has it: kUnavailable, "PATH: HELD", if it still has after `patience`. Needs a file system on
// which flock works.
class FileLock {
 public:
  static Expected<FileLock> Take(const std::string& path, std::string_view held,
                                 std::chrono::milliseconds patience = {});

 private:
  explicit FileLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

// Removes what writers of this path that were killed have left beside it. Only while nobody writes it.
void RemoveUnfinished(const std::string& path);

// Makes the names in a folder durable: new, renamed and removed files survive a loss of power.
Status SyncDirectory(const std::string& path);

// "PATH: cannot WHAT: REASON"; kNotFound for ENOENT, kIo for every other errno.
Error SystemError(std::string_view path, std::string_view what, int error_number);

}  // namespace tarn
