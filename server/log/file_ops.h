// The file operations of a log as an interface, which tests replace by a disk that fails, fills up, or loses unsynced
// data. Every error names the path and the system's reason (kNotFound for a missing path, kIo otherwise; Lock also
// returns kUnavailable). Only one thread at a time may use a file.
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
  // Writes the parts consecutively from `offset` on. A failed write may have written some of them. Whole pages (of 4
  // KiB) bypass the page cache if the file system supports it, because they are not read again soon.
  virtual Status Write(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) = 0;
  // Makes earlier writes durable (they survive a loss of power). After a failure the state of earlier writes is
  // unknown, and a second call does not help: Linux marks pages as clean that it could not write.
  virtual Status Sync() = 0;
  // Reserves disk space for the first `bytes` bytes of the file; unwritten parts read as zeros. If the disk has less
  // space, reserves `least`. Returns the reserved size; fails if there is no space for `least`.
  virtual Expected<std::uint64_t> Allocate(std::uint64_t bytes, std::uint64_t least) = 0;
  // Writes `bytes` durable zeros from `offset` on, in an allocated range. Later writes there change no metadata of the
  // file system, so their syncs are faster.
  virtual Status WriteZeros(std::uint64_t offset, std::uint64_t bytes) = 0;
  // Sets the size of the file, and frees the space reserved beyond it.
  virtual Status Truncate(std::uint64_t bytes) = 0;
  // Reads up to out.size() bytes; returns the number read, which is less at the end of the file.
  virtual Expected<std::size_t> Read(std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual Expected<std::uint64_t> Size() = 0;
};

// The lock is held until the object is destroyed.
class LogLock {
 public:
  virtual ~LogLock() = default;
};

class FileOps {
 public:
  virtual ~FileOps() = default;
  // Creates an empty file. kIo if the path exists.
  virtual Expected<std::unique_ptr<LogFile>> Create(const std::string& path) = 0;
  virtual Expected<std::unique_ptr<LogFile>> OpenToRead(const std::string& path) = 0;
  virtual Expected<std::unique_ptr<LogFile>> OpenToWrite(const std::string& path) = 0;  // without truncation
  virtual Status Remove(const std::string& path) = 0;
  // Renames atomically, replacing `to`. Durable after the next SyncDirectory.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Creates the directory and its parents. Does nothing if it exists.
  virtual Status MakeDirectory(const std::string& path) = 0;
  // Names of the entries of a directory, sorted.
  virtual Expected<std::vector<std::string>> List(const std::string& path) = 0;
  // Makes the names in a directory durable: creations, renames and removals.
  virtual Status SyncDirectory(const std::string& path) = 0;
  // Locks this path exclusively among all processes. kUnavailable if another process still holds the lock after the
  // timeout of MakeFileOps, which allows a killed process to exit.
  virtual Expected<std::unique_ptr<LogLock>> Lock(const std::string& path) = 0;
};

// The operations of the operating system. Stateless: any thread. `lock_timeout`: how long Lock waits for another
// process.
std::unique_ptr<FileOps> MakeFileOps(std::chrono::milliseconds lock_timeout = kLockTimeout);

}  // namespace tarn::server
