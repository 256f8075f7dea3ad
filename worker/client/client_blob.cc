#include "worker/client/client_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/codec/worker_blob.h"
#include "core/hash.h"

namespace tarn::worker {

void ClientBlob::Pause(Repeats* repeats) {
  repeats->due = context_->now + RepeatPause(context_->options.resend_us, repeats->count);
}

void ClientBlob::OnWelcome() {
  const std::uint64_t bytes = context_->welcome.blob_bytes;
  if (bytes == 0) return;
  if (bytes > limits::kBlobBytesMax)
    return context_->Stop(ErrorCode::kTooLarge, fmt::format("a blob of {} bytes to go on from, expected at most {}",
                                                            bytes, limits::kBlobBytesMax));
  get_.emplace(Get{Buffer::Allocate(bytes), 0, {}});
}

void ClientBlob::Dispatch(Clock asked) {
  const CheckpointOrder& order = context_->view.checkpoint;
  if (put_ && put_->checkpoint != order.id) put_.reset();
  const bool reached = !order.at_clock || asked >= order.clock;
  if (order.id.value != 0 && order.blobs && reached && !put_ && restored()) Take(order, asked);
  if (put_ && put_->repeats.due == 0) Send(&*put_);
  if (get_ && get_->repeats.due == 0) Ask(&*get_);
}

void ClientBlob::Take(const CheckpointOrder& order, Clock asked) {
  put_.emplace();
  put_->checkpoint = order.id;
  put_->clock = asked;
  const BlobChunk head{order.id, WorkerRank(context_->welcome.rank), asked, 0, false, {}};
  put_->chunks = residuals_->Encode(head, context_->tables, context_->options.blob_chunk_bytes);
  std::uint64_t offset = 0;
  for (const Buffer& chunk : put_->chunks) {
    put_->offsets.push_back(offset);
    offset += chunk.size();
  }
  put_->offsets.push_back(offset);
}

// Sends the next piece to the shard or, after the last piece, the file to the scheduler.
void ClientBlob::Send(Put* put) {
  Pause(&put->repeats);
  if (!put->file) {
    context_->Send(ShardPeer(Shard()), PutBlob{put->checkpoint, put->offsets[put->next], put->offsets.back()}, {},
                   put->chunks[put->next]);
    return;
  }
  CheckpointPart part;
  part.id = put->checkpoint;
  part.files = {*put->file};
  part.clock = part.max_clock = put->clock;
  context_->SendToScheduler(std::move(part));
}

void ClientBlob::OnAck(ShardId from, const PutBlobAck& ack) {
  if (!put_ || put_->file || from != Shard() || ack.checkpoint != put_->checkpoint) return;
  const auto at = std::ranges::lower_bound(put_->offsets, ack.received);
  const auto chunk = static_cast<std::size_t>(at - put_->offsets.begin());
  const bool all = ack.received == put_->offsets.back();
  if (at == put_->offsets.end() || *at != ack.received || all == ack.file.name.empty()) {
    ++context_->counters.malformed;
    return;
  }
  if (all) {
    put_->file = ack.file;
    put_->chunks.clear();
  } else if (chunk == put_->next) {
    return;  // a repeated answer; its piece was sent, and is repeated if lost
  }
  put_->next = chunk;
  put_->repeats = {};
  Send(&*put_);
}

void ClientBlob::Ask(Get* get) {
  Pause(&get->repeats);
  context_->Send(ShardPeer(Shard()), GetBlob{get->received});
}

void ClientBlob::OnPiece(ShardId from, const BlobPiece& piece, const Buffer& bytes) {
  if (!get_ || from != Shard() || piece.offset != get_->received) return;
  if (piece.total != get_->bytes.size() || bytes.empty() || bytes.size() > piece.total - piece.offset) {
    ++context_->counters.malformed;
    return;
  }
  std::memcpy(get_->bytes.data() + piece.offset, bytes.data(), bytes.size());
  get_->received += bytes.size();
  get_->repeats = {};
  if (get_->received == get_->bytes.size()) return Restore();
  Ask(&*get_);
}

void ClientBlob::Restore() {
  const Buffer bytes = std::exchange(get_, std::nullopt)->bytes;
  const BlobOrigin origin{fmt::format("the blob of worker {} in the checkpoint", context_->welcome.rank),
                          CheckpointId(0), WorkerRank(context_->welcome.rank)};
  const Status status = ReadBlob({bytes.data(), bytes.size()}, origin, [this](const BlobChunk& chunk) -> Status {
    residuals_->Restore(chunk.rows);
    return {};
  });
  if (!status) context_->Stop(status.error().code, status.error().message);
}

void ClientBlob::OnTimer() {
  const auto repeat = [this](auto* item, auto send) {
    if (item->repeats.due > context_->now) return;
    ++item->repeats.count;
    ++context_->counters.repeats;
    send(item);
  };
  if (put_) repeat(&*put_, [this](Put* put) { Send(put); });
  if (get_) repeat(&*get_, [this](Get* get) { Ask(get); });
}

TimeUs ClientBlob::NextTimer() const {
  TimeUs next = kNever;
  if (put_) next = std::min(next, put_->repeats.due);
  if (get_) next = std::min(next, get_->repeats.due);
  return next;
}

std::uint64_t ClientBlob::Hash() const {
  std::uint64_t hash = put_ ? HashCombine(put_->checkpoint.value, put_->next) : 0;
  if (put_) hash = HashCombine(hash, put_->repeats.due);
  if (get_) hash = HashCombine(HashCombine(hash, get_->received), get_->repeats.due);
  return hash;
}

}  // namespace tarn::worker
