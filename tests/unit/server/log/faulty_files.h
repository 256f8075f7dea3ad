// File operations of which the n-th fails in a selected way. For tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "server/log/file_ops.h"

namespace tarn::server {

enum class FaultKind {
  kError,       // the operation does nothing and fails
  kShortWrite,  // a write writes half of its bytes and fails; others as above
  kFull,        // this and all later operations that need space fail
  kNoMemory,    // std::bad_alloc
  kHalt,        // this and all later operations do nothing and fail, like after a halt of the machine
};

// A test may set it while the log's thread reads it.
struct Fault {
  std::atomic<std::uint64_t> at = UINT64_MAX;  // which operation, counted from 0
  std::atomic<FaultKind> kind = FaultKind::kError;
  std::atomic<std::uint64_t> operations = 0;  // so far
  std::atomic<bool> fired = false;

  // The n-th operation from now on fails.
  void Arm(std::uint64_t n, FaultKind how) {
    kind = how;
    at = operations + n;
  }
};

namespace internal {

inline std::unexpected<Error> Injected(const std::string& path, const char* what) {
  return Fail(ErrorCode::kIo, path + ": cannot " + what + ": injected");
}

// Whether the operation fails. `takes_room`: it needs disk space.
inline bool Fires(Fault* fault, bool takes_room) {
  const std::uint64_t operation = fault->operations++;
  const bool later = operation > fault->at;
  const bool fires = operation == fault->at || (later && fault->kind == FaultKind::kHalt) ||
                     (later && fault->kind == FaultKind::kFull && takes_room);
  if (fires) fault->fired = true;
  if (fires && fault->kind == FaultKind::kNoMemory) throw std::bad_alloc();
  return fires;
}

class FaultyFile final : public LogFile {
 public:
  FaultyFile(std::unique_ptr<LogFile> file, std::string path, Fault* fault)
      : file_(std::move(file)), path_(std::move(path)), fault_(fault) {}
  Status Write(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) override {
    if (!Fires(fault_, true)) return file_->Write(offset, parts);
    if (fault_->kind == FaultKind::kShortWrite) {
      std::vector<std::byte> all;
      for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
      const std::span<const std::byte> half[] = {std::span(all).first(all.size() / 2)};
      TARN_RETURN_IF_ERROR(file_->Write(offset, half));
    }
    return Injected(path_, "write");
  }
  Status Sync() override { return Fires(fault_, true) ? Injected(path_, "sync") : file_->Sync(); }
  Status WriteZeros(std::uint64_t offset, std::uint64_t bytes) override {
    return Fires(fault_, true) ? Injected(path_, "write zeros to") : file_->WriteZeros(offset, bytes);
  }
  Expected<std::uint64_t> Allocate(std::uint64_t bytes, std::uint64_t least) override {
    if (Fires(fault_, true)) return Injected(path_, "allocate");
    return file_->Allocate(bytes, least);
  }
  Status Truncate(std::uint64_t bytes) override {
    return Fires(fault_, false) ? Injected(path_, "truncate") : file_->Truncate(bytes);
  }
  Expected<std::size_t> Read(std::uint64_t offset, std::span<std::byte> out) override {
    if (Fires(fault_, false)) return Injected(path_, "read");
    return file_->Read(offset, out);
  }
  Expected<std::uint64_t> Size() override {
    if (Fires(fault_, false)) return Injected(path_, "find the size of");
    return file_->Size();
  }

 private:
  std::unique_ptr<LogFile> file_;
  std::string path_;
  Fault* fault_;
};

}  // namespace internal

// `fault` outlives it.
class FaultyFileOps final : public FileOps {
 public:
  FaultyFileOps(std::unique_ptr<FileOps> files, Fault* fault) : files_(std::move(files)), fault_(fault) {}
  Expected<std::unique_ptr<LogFile>> Create(const std::string& path) override {
    if (internal::Fires(fault_, true)) return internal::Injected(path, "create");
    return Wrap(files_->Create(path), path);
  }
  Expected<std::unique_ptr<LogFile>> OpenToRead(const std::string& path) override {
    if (internal::Fires(fault_, false)) return internal::Injected(path, "open");
    return Wrap(files_->OpenToRead(path), path);
  }
  Expected<std::unique_ptr<LogFile>> OpenToWrite(const std::string& path) override {
    if (internal::Fires(fault_, false)) return internal::Injected(path, "open");
    return Wrap(files_->OpenToWrite(path), path);
  }
  Status Remove(const std::string& path) override {
    return internal::Fires(fault_, false) ? internal::Injected(path, "remove") : files_->Remove(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return internal::Fires(fault_, true) ? internal::Injected(from, "rename") : files_->Rename(from, to);
  }
  Status MakeDirectory(const std::string& path) override {
    return internal::Fires(fault_, true) ? internal::Injected(path, "make") : files_->MakeDirectory(path);
  }
  Expected<std::vector<std::string>> List(const std::string& path) override {
    if (internal::Fires(fault_, false)) return internal::Injected(path, "read");
    return files_->List(path);
  }
  Status SyncDirectory(const std::string& path) override {
    return internal::Fires(fault_, true) ? internal::Injected(path, "sync") : files_->SyncDirectory(path);
  }
  Expected<std::unique_ptr<LogLock>> Lock(const std::string& path) override {
    if (internal::Fires(fault_, true)) return internal::Injected(path, "lock");
    return files_->Lock(path);
  }

 private:
  Expected<std::unique_ptr<LogFile>> Wrap(Expected<std::unique_ptr<LogFile>> file, const std::string& path) {
    if (!file) return file;
    return std::make_unique<internal::FaultyFile>(std::move(*file), path, fault_);
  }

  std::unique_ptr<FileOps> files_;
  Fault* fault_;
};

}  // namespace tarn::server
