#include "worker/runtime/program_state.h"

#include <fmt/format.h>

#include <utility>

#include "core/codec/worker_blob.h"
#include "worker/runtime/requests.h"

namespace tarn::worker {

void ProgramState::Keep(std::function<Expected<Buffer>()> save) {
  save_ = std::move(save);
  ticked_ = true;
  const auto kept = MakeStatusRequest([](Client* client, Completion<>* done, TimeUs now, Outbox* out) {
    client->KeepState(now, out);
    done->Done();
  });
  runtime_->Submit(kept);
  (void)kept->Wait();  // later requests report the error of a client that has ended
}

// Waits until it is known whether a checkpoint needs the state that the program has now, and saves it if so. False: no
// checkpoint needs it, or the client has ended.
bool ProgramState::SaveIfWanted(Clock clock) {
  auto asked = MakeValueRequest<CheckpointId>([](Client* client, Completion<CheckpointId>* done, TimeUs now,
                                                 Outbox* out) { client->AwaitSave(done, now, out); });
  runtime_->Submit(asked);
  if (!asked->Wait() || asked->value.value == 0) return false;
  auto saved = MakeStatusRequest([checkpoint = asked->value, chunks = Save(asked->value, clock)](
                                     Client* client, Completion<>* done, TimeUs now, Outbox* out) {
    client->Save(checkpoint, chunks, now, out);
    done->Done();
  });
  runtime_->Submit(saved);
  return saved->Wait().has_value();
}

// Encodes the state on the program's thread, so that a large one does not block the thread that drives the client.
Expected<std::vector<Buffer>> ProgramState::Save(CheckpointId checkpoint, Clock clock) {
  const auto state = save_();
  if (!state) return std::unexpected(state.error());
  const BlobChunk head{.checkpoint = checkpoint, .rank = rank_, .clock = clock, .rows = {}, .state = {}};
  return EncodeProgramState(head, {state->data(), state->size()}, chunk_bytes_);
}

Expected<Buffer> ProgramState::Read(WorkerRank rank) {
  const std::lock_guard lock(reading_);
  auto request = MakeValueRequest<Buffer>([rank](Client* client, Completion<Buffer>* done, TimeUs now, Outbox* out) {
    client->ReadBlobOf(rank, done, now, out);
  });
  runtime_->Submit(request);
  TARN_RETURN_IF_ERROR(request->Wait());
  Buffer blob = std::move(request->value);
  if (blob.empty()) return blob;
  const BlobOrigin origin{fmt::format("the blob of worker {} in the checkpoint", rank.value), CheckpointId(0), rank};
  return ReadProgramState({blob.data(), blob.size()}, origin);
}

}  // namespace tarn::worker
