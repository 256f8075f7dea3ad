#include "server/shard/blob_desk.h"

#include <fmt/format.h>

#include <utility>

#include "core/limits.h"

namespace tarn::server {

std::string BlobFileName(CheckpointId checkpoint, WorkerRank rank, Incarnation worker) {
  return fmt::format("{}-worker-{}-{}.blob", checkpoint.value, rank.value, worker.value);
}

BlobDesk::Answer BlobDesk::AnswerOf(const Id& id, const Blob& blob) {
  return {blob.peer, PutBlobAck{id.first, blob.received, blob.file}};
}

Expected<std::optional<BlobDesk::Answer>> BlobDesk::Put(Peer from, const Sender& sender, const PutBlob& piece,
                                                        const Buffer& bytes) {
  if (store_ == nullptr || piece.checkpoint != order_.id || !order_.blobs || order_.directory.empty())
    return Fail(ErrorCode::kUnavailable,
                fmt::format("a blob for checkpoint {}: it is not being written here", piece.checkpoint.value));
  const Id id{piece.checkpoint, sender.incarnation};
  const auto [it, fresh] = blobs_.try_emplace(id);
  Blob& blob = it->second;
  if (fresh)
    blob = {.peer = from, .directory = order_.directory, .rank = WorkerRank(sender.rank), .total = piece.total};
  if (blob.total != piece.total)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a piece of a blob of {} bytes, expected one of {}", piece.total, blob.total));
  blob.peer = from;
  if (blob.busy || blob.abandoned) return std::nullopt;
  if (blob.whole() || piece.offset != blob.received) return AnswerOf(id, blob);
  blob.busy = true;
  store_->Write({id.first, blob.directory, id.second, blob.rank, piece.offset, piece.total, bytes});
  return std::nullopt;
}

Expected<std::optional<BlobDesk::Answer>> BlobDesk::OnWritten(const BlobWritten& written) {
  const auto it = blobs_.find({written.checkpoint, written.worker});
  if (it == blobs_.end()) return std::nullopt;
  Blob& blob = it->second;
  if (written.code == ErrorCode::kCancelled) {
    blobs_.erase(it);
    return std::nullopt;
  }
  if (blob.abandoned) return std::nullopt;  // kCancelled follows
  if (written.code != ErrorCode::kOk) {
    blobs_.erase(it);
    // For the scheduler, "not found" in a checkpoint's part means that its base is missing.
    return Fail(written.code == ErrorCode::kNotFound ? ErrorCode::kIo : written.code, written.message);
  }
  blob.busy = false;
  blob.received = written.received;
  blob.file = written.file;
  return AnswerOf(it->first, blob);
}

void BlobDesk::Abandon(const Id& id, Blob* blob) {
  if (std::exchange(blob->abandoned, true)) return;
  store_->Abandon(id.first, blob->directory, id.second, blob->rank);
}

// Complete blobs of other checkpoints are only forgotten: their files belong to their checkpoint, and are removed with
// its directory if it did not complete.
void BlobDesk::SetOrder(const CheckpointOrder& order) {
  order_ = order;
  std::erase_if(blobs_, [&](const auto& entry) { return entry.first.first != order.id && entry.second.whole(); });
  for (auto& [id, blob] : blobs_)
    if (id.first != order.id) Abandon(id, &blob);
}

Expected<BlobSlice> BlobDesk::Get(const GetBlob& wanted) const {
  if (store_ == nullptr || resumed_directory_.empty())
    return Fail(ErrorCode::kNotFound, "there is no resumed checkpoint to read blobs from");
  return store_->Read(resumed_directory_, WorkerRank(wanted.rank), wanted.offset, limits::kBlobPieceBytesMax);
}

void BlobDesk::Drop(Incarnation worker) {
  for (auto& [id, blob] : blobs_)
    if (id.second == worker && !blob.whole()) Abandon(id, &blob);
}

CheckpointId BlobDesk::writing() const {
  for (const auto& [id, blob] : blobs_)
    if (!blob.whole()) return id.first;
  return CheckpointId(0);
}

}  // namespace tarn::server
