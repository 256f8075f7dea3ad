#include "server/checkpoint/file_blob_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>

#include "core/crc32c.h"
#include "core/file.h"
#include "server/checkpoint/file_sum.h"
#include "server/exhaustion.h"

namespace tarn::server {

FileBlobStore::~FileBlobStore() { closing_ = true; }

void FileBlobStore::Write(BlobWrite write) { Queue(std::move(write)); }

void FileBlobStore::Abandon(CheckpointId checkpoint, const std::string& directory, Incarnation worker,
                            WorkerRank rank) {
  Queue(AbandonJob{checkpoint, directory + "/" + BlobFileName(checkpoint, rank, worker), worker});
}

void FileBlobStore::Queue(Job job) {
  writes_.Post([this, job = std::move(job)] {
    if (!closing_) DoAndReport(job);
  });
}

void FileBlobStore::DoAndReport(const Job& job) {
  BlobWritten written = std::visit([this](const auto& it) { return Do(it); }, job);
  {
    const std::lock_guard lock(mutex_);
    written_.push_back(std::move(written));
  }
  wake_();
}

BlobWritten FileBlobStore::Do(const BlobWrite& write) {
  BlobWritten written{write.checkpoint, write.worker, write.offset + write.bytes.size(), {}, ErrorCode::kOk, {}};
  Expected<CheckpointFile> file = CheckpointFile();
  if (const Status memory = CatchExhaustion([&] { file = WritePiece(write); }); !memory)
    file = std::unexpected(memory.error());
  if (file) {
    written.file = *std::move(file);
    return written;
  }
  open_.erase({write.checkpoint, write.worker});
  written.code = file.error().code;
  written.message = file.error().message;
  return written;
}

BlobWritten FileBlobStore::Do(const AbandonJob& job) {
  open_.erase({job.checkpoint, job.worker});
  ::unlink(job.path.c_str());  // fails if no piece was written
  return {job.checkpoint, job.worker, 0, {}, ErrorCode::kCancelled, "abandoned"};
}

Expected<FileBlobStore::Open*> FileBlobStore::OpenFor(const BlobWrite& write, const std::string& path) {
  const Id id{write.checkpoint, write.worker};
  if (write.offset != 0) {
    const auto it = open_.find(id);
    TARN_CHECK(it != open_.end(), "a blob is written in order");
    return &it->second;
  }
  std::error_code error;
  std::filesystem::create_directories(write.directory, error);
  if (error) return std::unexpected(SystemError(write.directory, "create", error.value()));
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return std::unexpected(SystemError(path, "create", errno));
  Open& open = open_[id];
  open = {std::move(file), 0};
  return &open;
}

// Writes a piece. After the last one, syncs the file and returns its description; before, one without a name. The
// directory is synced when the manifest is written.
Expected<CheckpointFile> FileBlobStore::WritePiece(const BlobWrite& write) {
  const std::string name = BlobFileName(write.checkpoint, write.rank, write.worker);
  const std::string path = write.directory + "/" + name;
  const auto open = OpenFor(write, path);
  if (!open) return std::unexpected(open.error());
  const std::byte* from = write.bytes.data();
  for (std::size_t left = write.bytes.size(); left > 0;) {
    const ssize_t n = ::write((*open)->file.get(), from, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::unexpected(SystemError(path, "write", errno));
    from += n;
    left -= static_cast<std::size_t>(n);
  }
  (*open)->crc32c = Crc32c(std::span(write.bytes.data(), write.bytes.size()), (*open)->crc32c);
  if (write.offset + write.bytes.size() != write.total) return CheckpointFile();
  if (::fsync((*open)->file.get()) != 0) return std::unexpected(SystemError(path, "sync", errno));
  CheckpointFile file{.name = name, .bytes = write.total, .crc32c = (*open)->crc32c};
  open_.erase({write.checkpoint, write.worker});
  return file;
}

std::vector<BlobWritten> FileBlobStore::TakeWritten() {
  const std::lock_guard lock(mutex_);
  return std::exchange(written_, {});
}

// The blob file of a rank. Its first use verifies the whole file against the manifest.
Expected<CheckpointFile> FileBlobStore::Verified(const std::string& directory, WorkerRank rank) {
  const auto not_yet = [&] {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("{}: the blob of worker {} is being verified", directory, rank.value));
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = verified_.find({directory, rank}); known != verified_.end())
      return known->second ? *known->second : not_yet();
  }
  const auto manifest = ReadManifest(directory);
  if (!manifest) return Fail(ErrorCode::kCorrupt, manifest.error().message);
  const auto blob = std::ranges::find(manifest->blobs, rank, &WorkerBlob::rank);
  if (blob == manifest->blobs.end())
    return Fail(ErrorCode::kNotFound, fmt::format("{}: no blob of worker {}", directory, rank.value));
  if (blob->file.bytes > verify_at_once_bytes_) {
    const std::lock_guard lock(mutex_);
    verified_[{directory, rank}] = std::nullopt;
    writes_.Post([this, directory, rank, file = blob->file] {
      if (closing_) return;
      Expected<CheckpointFile> verified = file;
      if (const Status memory = CatchExhaustion([&] { verified = Verify(directory, file); }); !memory)
        verified = std::unexpected(memory.error());
      const std::lock_guard done(mutex_);
      verified_[{directory, rank}] = std::move(verified);
    });
    return not_yet();
  }
  auto verified = Verify(directory, blob->file);
  const std::lock_guard lock(mutex_);
  if (verified) verified_[{directory, rank}] = verified;
  return verified;
}

// kNotFound would mean that the checkpoint has no blob of the worker.
Expected<CheckpointFile> FileBlobStore::Verify(const std::string& directory, const CheckpointFile& file) {
  const Status fits = VerifyFile(directory + "/" + file.name, file);
  if (fits) return file;
  return Fail(fits.error().code == ErrorCode::kNotFound ? ErrorCode::kCorrupt : fits.error().code,
              fits.error().message);
}

Expected<BlobSlice> FileBlobStore::Read(const std::string& directory, WorkerRank rank, std::uint64_t offset,
                                        std::size_t bytes_max) {
  const auto file = Verified(directory, rank);
  if (!file) return std::unexpected(file.error());
  if (offset >= file->bytes)
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}: {} bytes, asked for from {} on", file->name, file->bytes, offset));
  const std::string path = directory + "/" + file->name;
  const Descriptor in(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (in.get() < 0) return Fail(ErrorCode::kIo, SystemError(path, "open", errno).message);
  BlobSlice slice{file->bytes, Buffer::Allocate(std::min<std::uint64_t>(bytes_max, file->bytes - offset))};
  for (std::size_t done = 0; done < slice.bytes.size();) {
    const ssize_t n =
        ::pread(in.get(), slice.bytes.data() + done, slice.bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Fail(ErrorCode::kIo, SystemError(path, "read", errno).message);
    if (n == 0)
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{}: it became shorter than {} bytes after it was verified", path, file->bytes));
    done += static_cast<std::size_t>(n);
  }
  return slice;
}

}  // namespace tarn::server
