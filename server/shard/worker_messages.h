// Handles the messages of workers: decodes each message, delays it if its rows are on disk, checks its sender (rule E3)
// and passes it to the object that answers it. Not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/message.h"
#include "server/shard/blob_desk.h"
#include "server/shard/clocks.h"
#include "server/shard/durable_outbox.h"
#include "server/shard/message_decoder.h"
#include "server/shard/pulls.h"
#include "server/shard/pushes.h"
#include "server/shard/row_gate.h"
#include "server/shard/senders.h"
#include "server/shard/shard_observer.h"
#include "server/shard/shard_step.h"
#include "server/shard/stop_notice.h"
#include "server/store/store.h"

namespace tarn::server {

class WorkerMessages {
 public:
  // Parts of the shard that it uses; all outlive this object.
  struct Context {
    Store* rows;
    Clocks* clocks;
    Pushes* pushes;
    Pulls* pulls;
    BlobDesk* blobs;
    Senders* senders;
    MessageDecoder* decoder;
    RowGate* gate;
    DurableOutbox* outbox;
    ShardStep* step;
    StopNotice* stop;
    ShardObserver* observer;
    std::function<void()> on_tick;             // called after a worker's clock advanced
    std::function<std::size_t()> other_bytes;  // memory of the shard besides its rows
  };
  explicit WorkerMessages(Context context) : context_(std::move(context)) {}

  // Handles a message that is not from the scheduler.
  void OnMessage(Peer from, Message&& message);
  // Receives the results of the tier's disk and keeps the rows within their budget. Unless `paused`, handles the
  // messages whose rows are now in memory. Does nothing without a tier.
  void Maintain(bool paused);

 private:
  bool IsAppliedAtOnce(const Message& message) const;
  bool Stopping() const { return context_.stop->stopped() || context_.stop->step_failed(); }
  void Handle(Peer from, Message* message);
  Status Dispatch(Peer from, Message* message);
  Status OnPush(Peer from, const Push& push, const Message& message, const Cohort::Member& member);
  Status OnTick(Peer from, const Tick& tick, const Message& message, const Cohort::Member& member);
  Status OnPutBlob(Peer from, const PutBlob& piece, const Message& message);
  Status OnGetBlob(Peer from, const GetBlob& wanted);

  Context context_;
};

}  // namespace tarn::server
