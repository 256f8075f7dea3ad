#include "worker/client/client_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/codec/worker_blob.h"
#include "core/hash.h"

namespace tarn::worker {

void ClientBlob::Pause(Repeats* repeats) {
  repeats->due = context_->now + RepeatPause(context_->options.resend_us, repeats->count);
}

void ClientBlob::OnWelcome() { Begin(WorkerRank(context_->welcome.rank), nullptr); }

// Starts to fetch the blob of a rank, if there is one.
void ClientBlob::Begin(WorkerRank rank, Completion<Buffer>* reader) {
  const auto& blobs = context_->welcome.blobs;
  const auto blob = std::ranges::find(blobs, rank.value, &BlobSize::rank);
  if (blob == blobs.end()) {
    if (reader != nullptr) reader->Done({});
    return;
  }
  if (blob->bytes > limits::kBlobBytesMax) {
    const Error error{ErrorCode::kTooLarge,
                      fmt::format("the blob of worker {} in the checkpoint has {} bytes, expected at most {}",
                                  rank.value, blob->bytes, limits::kBlobBytesMax)};
    if (reader != nullptr) reader->Failed(error);
    return context_->Stop(error.code, error.message);
  }
  get_.emplace(Get{rank, reader, Buffer::Allocate(blob->bytes), 0, {}});
}

void ClientBlob::Read(WorkerRank rank, Completion<Buffer>* done) {
  TARN_CHECK(!get_, "one blob is read at a time");
  Begin(rank, done);
}

void ClientBlob::AwaitSave(Completion<CheckpointId>* done) {
  if (saver_ == nullptr) {
    saver_ = done;
    return;
  }
  context_->Stop(
      ErrorCode::kInvalidArgument,
      "this program keeps state in checkpoints, and two of its threads made requests at the same time: expected all "
      "pulls, pushes, ticks and requests for leases in one thread");
  done->Failed({context_->stop_reason.code, context_->stop_reason.reason});
}

// Whether the current order asks for a blob that is not made yet.
bool ClientBlob::Due(Clock asked) const {
  const CheckpointOrder& order = context_->view.checkpoint;
  const bool reached = !order.at_clock || asked >= order.clock;
  return order.id.value != 0 && order.blobs && reached && !put_ && restored();
}

void ClientBlob::Dispatch(Clock asked, bool undecided) {
  const CheckpointOrder& order = context_->view.checkpoint;
  if (put_ && put_->checkpoint != order.id) put_.reset();
  const bool due = Due(asked);
  if (due && !keeps_) Take(asked, {});
  if (saver_ != nullptr && (due || !undecided)) std::exchange(saver_, nullptr)->Done(due ? order.id : CheckpointId(0));
  if (put_ && put_->repeats.due == 0) Send(&*put_);
  if (get_ && get_->repeats.due == 0) Ask(&*get_);
}

// The order may have been abandoned meanwhile.
void ClientBlob::Save(CheckpointId checkpoint, Expected<std::vector<Buffer>> chunks, Clock asked) {
  if (!chunks) return context_->Stop(chunks.error().code, "the program's state: " + chunks.error().message);
  if (context_->view.checkpoint.id == checkpoint && Due(asked)) Take(asked, *std::move(chunks));
}

void ClientBlob::Take(Clock asked, std::vector<Buffer> program_state) {
  const bool has_program_state = !program_state.empty();
  put_.emplace(Put{.checkpoint = context_->view.checkpoint.id,
                   .clock = asked,
                   .chunks = std::move(program_state),
                   .offsets = {},
                   .next = 0,
                   .program_state = has_program_state,
                   .file = {},
                   .repeats = {}});
  BlobChunk head{.checkpoint = put_->checkpoint,
                 .rank = WorkerRank(context_->welcome.rank),
                 .clock = asked,
                 .rows = {},
                 .state = {}};
  head.index = static_cast<std::uint32_t>(put_->chunks.size());
  std::ranges::move(residuals_->Encode(head, context_->tables, context_->options.blob_chunk_bytes),
                    std::back_inserter(put_->chunks));
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
    context_->Send(ShardPeer(Shard()), PutBlob{put->checkpoint, put->offsets[put->next], put->offsets.back()},
                   put->chunks[put->next]);
    return;
  }
  CheckpointPart part;
  part.id = put->checkpoint;
  part.files = {*put->file};
  part.clock = part.max_clock = put->clock;
  part.program_state = put->program_state;
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
    return;  // a repeated answer: the next piece has been sent, and OnTimer repeats it
  }
  put_->next = chunk;
  put_->repeats = {};
  Send(&*put_);
}

void ClientBlob::Ask(Get* get) {
  Pause(&get->repeats);
  context_->Send(ShardPeer(Shard()), GetBlob{get->received, get->rank.value});
}

void ClientBlob::OnPiece(ShardId from, const BlobPiece& piece, const Buffer& bytes) {
  if (!get_ || from != Shard() || piece.rank != get_->rank.value || piece.offset != get_->received) return;
  if (piece.total != get_->bytes.size() || bytes.empty() || bytes.size() > piece.total - piece.offset) {
    ++context_->counters.malformed;
    return;
  }
  std::memcpy(get_->bytes.data() + piece.offset, bytes.data(), bytes.size());
  get_->received += bytes.size();
  get_->repeats = {};
  if (get_->received == get_->bytes.size()) return Finish();
  Ask(&*get_);
}

void ClientBlob::Finish() {
  const Get got = *std::exchange(get_, std::nullopt);
  if (got.reader != nullptr) return got.reader->Done(got.bytes);
  const BlobOrigin origin{fmt::format("the blob of worker {} in the checkpoint", got.rank.value), CheckpointId(0),
                          got.rank};
  const Status status =
      ReadBlob({got.bytes.data(), got.bytes.size()}, origin, [this](const BlobChunk& chunk) -> Status {
        residuals_->Restore(chunk.rows);
        return {};
      });
  if (!status) context_->Stop(status.error().code, status.error().message);
}

void ClientBlob::FailAll(const Error& error) {
  if (saver_ != nullptr) std::exchange(saver_, nullptr)->Failed(error);
  if (get_ && get_->reader != nullptr) std::exchange(get_, std::nullopt)->reader->Failed(error);
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
  if (keeps_) hash = HashCombine(hash, saver_ != nullptr);
  return hash;
}

}  // namespace tarn::worker
