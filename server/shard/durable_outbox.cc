#include "server/shard/durable_outbox.h"

#include <utility>

#include "server/shard/logged_inputs.h"

namespace tarn::server {

void DurableOutbox::Begin(CheckpointId dropped_before) {
  dropped_before_ = dropped_before;
  logging_ = true;
}

void DurableOutbox::AppendView(const View& view, CheckpointId newest_order) {
  if (!logging_) return;
  Append(ViewOf(view, newest_order));
  if (view.whole <= dropped_before_) return;
  dropped_before_ = view.whole;
  log_->DropBefore(view.whole);
}

void DurableOutbox::BeginSegment(CheckpointId cut, const LoggedHead& head) {
  if (logging_) appended_ = log_->BeginSegment(cut, EncodeRecord(head));
}

void DurableOutbox::Send(Peer to, Body body) {
  if (IsDurable()) return step_->Send(to, std::move(body));
  held_.Add(appended_, {to, step_->Make(std::move(body))});
}

void DurableOutbox::Answer(Peer to, Incarnation worker, Body body, bool first) {
  if (IsDurable()) return step_->Send(to, std::move(body));
  held_.AddAnswer(appended_, {to, step_->Make(std::move(body))}, worker, first);
}

// While the disk does not respond, new state cannot be sent, but heartbeats continue so that the shard does not appear
// dead.
void DurableOutbox::SendHeartbeat(Heartbeat beat) {
  if (IsDurable())
    last_heartbeat_ = beat;
  else
    step_->Send(kSchedulerPeer, last_heartbeat_.value_or(Heartbeat()));  // a heartbeat of view 0 confirms no view
  Send(kSchedulerPeer, std::move(beat));
}

Status DurableOutbox::OnSynced() {
  if (!logging_) return {};
  const auto synced = log_->TakeSynced();
  if (!synced) return std::unexpected(synced.error());
  synced_ = *synced;
  held_.TakeDurable(
      synced_,
      [this](Outgoing outgoing) {
        if (const auto* beat = std::get_if<Heartbeat>(&outgoing.message.body)) last_heartbeat_ = *beat;
        step_->Send(std::move(outgoing));
      },
      [this](Peer to, Body body) { step_->Send(to, std::move(body)); });
  return {};
}

}  // namespace tarn::server
