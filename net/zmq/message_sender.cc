#include "net/zmq/message_sender.h"

#include <utility>
#include <variant>

namespace tarn::net {

template <typename FrameOrFrames>
void MessageSender::SendTo::operator()(const LaneId& to, FrameOrFrames what) const {
  const std::size_t messages = MessagesIn(what);
  if (sender->Send(to, std::move(what))) return;
  sender->dropped_backlog_ += messages;
  LogWarning(sender->backlog_limiter_, "dropped {} messages to peer {}: more than {} MiB would wait for it", messages,
             to.peer.value, sender->waiting_bytes_max_ >> 20);
}

template <typename FrameOrFrames>
bool MessageSender::Send(const LaneId& to, FrameOrFrames what) {
  if (!shm_->Sends(to.peer)) return sockets_->SendOrKeep(to, std::move(what));
  const std::size_t messages = MessagesIn(what);
  const std::size_t bytes = BytesOf(what);
  if (!shm_->Send(to.peer, std::move(what))) return false;
  sent_messages_ += messages;
  sent_bytes_ += bytes;
  return true;
}

void MessageSender::Add(Peer to, const Message& message) {
  const Status begun = encoder_.Begin(message);
  if (begun) return bundles_.Add(LaneFor(to, message), encoder_, SendTo{this});
  ++dropped_unencodable_;
  LogWarning(unencodable_limiter_, "dropped a message that cannot be encoded: {}", ToString(begun.error()));
}

void MessageSender::Flush() { bundles_.Flush(SendTo{this}); }

LaneId MessageSender::LaneFor(Peer to, const Message& message) {
  const bool may_choose = links_->has_several() && std::holds_alternative<Pull>(message.body) && !shm_->Sends(to);
  return may_choose ? links_->NextForPull(to, sockets_->backlog()) : to;
}

void MessageSender::AddTo(TransportCounters* counters) const {
  counters->sent_messages += sent_messages_;
  counters->sent_bytes += sent_bytes_;
  counters->dropped_backlog += dropped_backlog_;
  counters->dropped_unencodable += dropped_unencodable_;
}

}  // namespace tarn::net
