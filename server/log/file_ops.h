// Everything that a log does to files, behind one small interface: so that a test can swap in a disk that fails, fills
// up, or forgets what was not synced. Every error names the path and the system's reason (kNotFound for a path that is
// not there, kIo otherwise). A file belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace tarn::server {

class LogFile {
 public:
  virtual ~LogFile() = default;
  // Writes the parts one behind the other from `offset` on, all or fails; a failed one may have written some. Whole
  // pages (of 4 KiB) go past the system's cache where the file system lets them: nobody will read them from there.
  virtual Status Write(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) = 0;
  // What was written survives a loss of power. After a failure nothing may be assumed of what was written before it,
  // and a second call proves nothing (Linux marks pages clean that it could not write).
  virtual Status Sync() = 0;
  // Reserves disk space up to `bytes` from the file's beginning; what was not written reads as zeros. Where the disk
  // has less space, reserves `least`. Returns how much is reserved; fails where there is no space for `least`.
  virtual Expected<std::uint64_t> Allocate(std::uint64_t bytes, std::uint64_t least) = 0;
  // Zeros, really written and durable, in `bytes` from `offset` on, of a place that was allocated: what is written
  // there later changes nothing but itself, so its sync has no changes of the file system to wait for.
  virtual Status Prepare(std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual Status Truncate(std::uint64_t bytes) = 0;
  // Fills `out` as far as the file goes; returns the bytes read.
  virtual Expected<std::size_t> Read(std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual Expected<std::uint64_t> Size() = 0;
};

// Held while it lives.
class LogLock {
 public:
  virtual ~LogLock() = default;
};

class FileOps {
 public:
  virtual ~FileOps() = default;
  // A new, empty file; an error if there is one of that name.
  virtual Expected<std::unique_ptr<LogFile>> Create(const std::string& path) = 0;
  virtual Expected<std::unique_ptr<LogFile>> OpenToRead(const std::string& path) = 0;
  virtual Expected<std::unique_ptr<LogFile>> OpenToWrite(const std::string& path) = 0;  // as it is
  virtual Status Remove(const std::string& path) = 0;
  // At once and whole: `to` is the file before or this one. Durable with the next SyncDirectory.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // With those above it. Nothing if it is there.
  virtual Status MakeDirectory(const std::string& path) = 0;
  // Names of what is in a folder, sorted.
  virtual Expected<std::vector<std::string>> List(const std::string& path) = 0;
  // New and removed names in a folder survive a loss of power.
  virtual Status SyncDirectory(const std::string& path) = 0;
  // The only holder of this path among all processes; kUnavailable if another holds it, for longer than one that was
  // killed may.
  virtual Expected<std::unique_ptr<LogLock>> Lock(const std::string& path) = 0;
};

// The real ones. No state: free to use from any thread. `patience`: of Lock, with a process that holds the path.
std::unique_ptr<FileOps> MakeFileOps(std::chrono::milliseconds patience = kLockPatience);

}  // namespace tarn::server
