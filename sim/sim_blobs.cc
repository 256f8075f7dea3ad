#include "sim/sim_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "core/codec/worker_blob.h"
#include "core/crc32c.h"

namespace tarn::sim {
namespace {

constexpr TimeUs kFastUs = 20'000;
constexpr TimeUs kSlowUs = 2'000'000;

std::string PathOf(const std::string& directory, CheckpointId checkpoint, WorkerRank rank, Incarnation worker) {
  return directory + "/" + server::BlobFileName(checkpoint, rank, worker);
}

}  // namespace

// Delay of an operation that begins now; it ends after all earlier ones.
TimeUs SimBlobStore::NextDelay() {
  const TimeUs now = hooks_.now();
  ends_ =
      std::max(ends_, now) + 1'000 + TimeUs(rng_.Below(std::uint64_t(rng_.Chance(options_.slow) ? kSlowUs : kFastUs)));
  return ends_ - now;
}

void SimBlobStore::Write(server::BlobWrite write) {
  const std::string path = PathOf(write.directory, write.checkpoint, write.rank, write.worker);
  if (write.offset == 0) {
    if (open_.contains(path)) oracle_->Fail(path + ": begun twice");
    open_.insert(path);
    disk_->writing.insert(write.directory);
    disk_->blobs[path].clear();
    disk_->unsynced_blobs[path] = options_.shard;
  } else if (!open_.contains(path) || disk_->blobs[path].size() != write.offset) {
    oracle_->Fail(fmt::format("{}: {} bytes at offset {}, expected an open file of that size", path, write.bytes.size(),
                              write.offset));
  }
  hooks_.later(NextDelay(), [this, write = std::move(write)] {
    const server::BlobWritten written = DoWrite(write);
    hooks_.written(written);
  });
}

server::BlobWritten SimBlobStore::DoWrite(const server::BlobWrite& write) {
  const std::string path = PathOf(write.directory, write.checkpoint, write.rank, write.worker);
  server::BlobWritten written{
      write.checkpoint, write.worker, write.offset + write.bytes.size(), {}, ErrorCode::kOk, {}};
  const auto close = [&] {
    open_.erase(path);
    disk_->writing.erase(disk_->writing.find(write.directory));
  };
  if (rng_.Chance(options_.fail)) {
    ++disk_->failed_writes;
    close();
    written.code = ErrorCode::kIo;
    written.message = path + ": No space left on device";
    return written;
  }
  std::string& bytes = disk_->blobs[path];
  bytes.append(reinterpret_cast<const char*>(write.bytes.data()), write.bytes.size());
  if (bytes.size() != write.total) return written;
  close();
  disk_->unsynced_blobs.erase(path);
  written.file = {.name = server::BlobFileName(write.checkpoint, write.rank, write.worker),
                  .bytes = bytes.size(),
                  .crc32c = Crc32c(bytes)};
  return written;
}

void SimBlobStore::Abandon(CheckpointId checkpoint, const std::string& directory, Incarnation worker, WorkerRank rank) {
  hooks_.later(NextDelay(), [this, checkpoint, directory, worker, rank] {
    const std::string path = PathOf(directory, checkpoint, rank, worker);
    disk_->blobs.erase(path);
    if (open_.erase(path) != 0) disk_->writing.erase(disk_->writing.find(directory));
    hooks_.written({checkpoint, worker, 0, {}, ErrorCode::kCancelled, "given up"});
  });
}

Expected<server::BlobSlice> SimBlobStore::Read(const std::string& directory, WorkerRank rank, std::uint64_t offset,
                                               std::size_t) {
  constexpr std::size_t kPieceBytes = 1'000;  // small, so that there are several
  const auto& blobs = disk_->manifests.at(directory).blobs;
  const auto blob = std::ranges::find(blobs, rank, &WorkerBlob::rank);
  if (blob == blobs.end())
    return Fail(ErrorCode::kNotFound, fmt::format("{}: no blob of worker {}", directory, rank.value));
  const std::string& bytes = disk_->blobs.at(directory + "/" + blob->file.name);
  if (offset >= bytes.size())
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}/{}: offset {}, expected below {}", directory, blob->file.name, offset, bytes.size()));
  const std::size_t size = std::min(kPieceBytes, bytes.size() - offset);
  return server::BlobSlice{bytes.size(), Buffer::Copy(bytes.data() + offset, size)};
}

Expected<StoredState> ReadStored(const SimDisk& disk, const std::string& directory, const Manifest& manifest,
                                 const WorkerBlob& blob) {
  const std::string path = directory + "/" + blob.file.name;
  const auto bytes = disk.blobs.find(path);
  if (bytes == disk.blobs.end()) return Fail(ErrorCode::kNotFound, path + ": not found");
  if (bytes->second.size() != blob.file.bytes || Crc32c(bytes->second) != blob.file.crc32c)
    return Fail(ErrorCode::kCorrupt, path + ": differs from the manifest");
  StoredState stored;
  const auto take = [&](const BlobChunk& chunk) -> Status {
    stored.clock = chunk.clock;
    if (!chunk.state.empty()) stored.program = chunk.state;  // the state fits into one chunk
    const ResidualRows& rows = chunk.rows;
    for (std::size_t i = 0; rows.table == "counts" && i < rows.keys.size(); ++i)
      stored.residuals.push_back({rows.keys[i], rows.clocks[i], -rows.values[i * rows.dim]});
    return {};
  };
  TARN_RETURN_IF_ERROR(ReadBlob(std::as_bytes(std::span(bytes->second)), {path, manifest.id, blob.rank}, take));
  return stored;
}

}  // namespace tarn::sim
