// The blobs of workers: into checkpoints, and back to those that go on from one (rules K9, K10).
#include "core/limits.h"
#include "server/shard/shard_impl.h"

namespace tarn::server {

Status Shard::Impl::OnPutBlob(Peer from, const PutBlob& piece, const Message& message) {
  const auto answer = blobs_.Put(from, message.sender, piece, message.values, view_.checkpoint);
  if (!answer) return std::unexpected(answer.error());
  if (*answer) Send((*answer)->to, (*answer)->ack);
  return {};
}

void Shard::Impl::OnBlobWritten(const BlobWritten& written, TimeUs now, Outbox* out) {
  if (stopped_) return;
  now_ = now;
  out_ = out;
  const auto answer = blobs_.OnWritten(written);
  if (!answer)
    return ReportPart({.id = written.checkpoint, .code = answer.error().code, .message = answer.error().message});
  if (*answer) Send((*answer)->to, (*answer)->ack);
}

// What is not as the manifest says ends the run: it would go on as another.
Status Shard::Impl::OnGetBlob(Peer from, const GetBlob& wanted, const Message& message) {
  if (options_.blobs == nullptr || resume_directory_.empty())
    return Fail(ErrorCode::kNotFound, "no checkpoint to go on from");
  auto slice = options_.blobs->Read(resume_directory_, WorkerRank(message.sender.rank), wanted.offset,
                                    limits::kBlobPieceBytesMax);
  if (!slice && slice.error().code != ErrorCode::kNotFound) StopWith(slice.error().code, slice.error().message);
  if (!slice) return std::unexpected(slice.error());
  Message reply = Make(BlobPiece{wanted.offset, slice->total});
  reply.values = std::move(slice->bytes);
  out_->push_back({from, std::move(reply)});
  return {};
}

}  // namespace tarn::server
