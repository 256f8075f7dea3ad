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

// Reads a file. kNotFound if it does not exist, kTooLarge if it has more than bytes_max bytes, else kIo.
Expected<std::string> ReadFile(const std::string& path, std::size_t bytes_max);

// Replaces `path` atomically: readers, also after a loss of power, see the old or the new file. Writes a temporary
// file, syncs, renames it, and syncs the directory. kIo (kNotFound: no such directory); the old file is then unchanged,
// unless the error came after the rename. Concurrent writers of one path must be in different processes.
Status WriteFileAtomic(const std::string& path, std::span<const std::byte> bytes);

inline Status WriteFileAtomic(const std::string& path, std::string_view text) {
  return WriteFileAtomic(path, std::as_bytes(std::span(text.data(), text.size())));
}

// A file that is written in pieces and put in place atomically by Commit. Until then it has no name, so it disappears
// if the process ends. On file systems without unnamed files it is PATH.tmp-PID, which remains if the process is
// killed. Errors as for WriteFileAtomic. Not thread-safe.
class AtomicFile {
 public:
  static Expected<AtomicFile> Create(const std::string& path);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) = default;
  AtomicFile& operator=(AtomicFile&&) = delete;

  // Writes `bytes` at any offset; offsets may be out of order and beyond the end.
  Status WriteAt(std::span<const std::byte> bytes, std::uint64_t offset);
  // Makes the file durable and replaces PATH. May be called once.
  Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary_path, Descriptor file, bool named);

  std::string path_, temporary_path_;
  Descriptor file_;
  bool named_;  // temporary_path_ exists
};

// Timeout for the lock of a killed process: the kernel releases the lock only after it has freed the process's memory.
inline constexpr std::chrono::milliseconds kLockTimeout{10'000};

// Locks a file exclusively among processes, until this object is destroyed or the process ends. The file remains.
// kUnavailable if another process still holds the lock after `timeout` (0: one attempt); the message is "PATH: " and
// `held`, a text for users that explains the conflict. Requires a file system with flock.
class FileLock {
 public:
  static Expected<FileLock> Take(const std::string& path, std::string_view held,
                                 std::chrono::milliseconds timeout = {});

 private:
  explicit FileLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

// Removes temporary files that killed writers of this path left. There must be no current writer.
void RemoveUnfinished(const std::string& path);

// Makes the names in a directory durable: creations, renames and removals survive a loss of power.
Status SyncDirectory(const std::string& path);

// "PATH: cannot WHAT: REASON"; kNotFound for ENOENT, kIo for every other errno.
Error SystemError(std::string_view path, std::string_view what, int error_number);

}  // namespace tarn
