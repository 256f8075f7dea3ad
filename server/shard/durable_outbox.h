// Persists, then sends: appends a shard's inputs to its log, and delays messages that depend on them until they are
// durable (rules L1, L4, L7). Without a log every message is sent at once. Not thread-safe.
#pragma once

#include <optional>

#include "core/error.h"
#include "core/message.h"
#include "core/view.h"
#include "server/log/record.h"
#include "server/log/shard_log.h"
#include "server/shard/held_answers.h"
#include "server/shard/shard_step.h"

namespace tarn::server {

class DurableOutbox {
 public:
  // Both outlive the outbox. `log` may be null.
  DurableOutbox(ShardLog* log, ShardStep* step) : log_(log), step_(step) {}

  // Starts logging. `dropped_before`: segments before this checkpoint are already removed.
  void Begin(CheckpointId dropped_before);
  bool logging() const { return logging_; }

  // Appends an input, if logging. Call it before the input changes the state.
  template <typename Logged>
  void Append(const Logged& input) {
    if (logging_) appended_ = log_->Append(EncodeRecord(input));
  }
  // Appends a view that is being adopted, and drops the segments that are older than its complete checkpoint.
  void AppendView(const View& view, CheckpointId newest_order);
  // Begins a segment with the current state. The caller then appends the gathered pushes.
  void BeginSegment(CheckpointId cut, const LoggedHead& head);

  // Sends the message once everything appended so far is durable.
  void Send(Peer to, Body body);
  // The same for the answer to a push or a tick. `first`: the push or tick changed the state.
  void Answer(Peer to, Incarnation worker, Body body, bool first);
  // The same for a heartbeat. If it must wait, the last heartbeat that was sent (if none, one of view 0) is sent again
  // at once.
  void SendHeartbeat(Heartbeat beat);

  // Sends the messages whose records have become durable. An error is that of the log: nothing more becomes durable.
  Status OnSynced();
  // Drops the delayed messages.
  void DropHeld() { held_.Clear(); }

  bool IsDurable() const { return !logging_ || synced_ >= appended_; }
  LogSequence appended() const { return appended_; }
  LogSequence synced() const { return synced_; }
  std::uint64_t log_bytes() const { return logging_ ? log_->bytes() : 0; }
  std::size_t held() const { return held_.size(); }

 private:
  ShardLog* log_;
  ShardStep* step_;
  bool logging_ = false;
  LogSequence appended_, synced_;
  CheckpointId dropped_before_;
  HeldAnswers held_;
  std::optional<Heartbeat> last_heartbeat_;  // the last one sent
};

}  // namespace tarn::server
