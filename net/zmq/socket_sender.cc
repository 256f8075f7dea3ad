#include "net/zmq/socket_sender.h"

#include <utility>

#include "net/accepted_peers.h"

namespace tarn::net {

template <typename What>
bool SocketSender::TrySend(const LaneId& to, const What& frames) {
  SendResult result = SendResult::kUnreachable;
  if (IsAccepted(to.peer))
    result = router_->Send(to.peer, frames);
  else if (PolledSocket* lane = links_->Find(to))
    result = lane->Send({}, frames);
  if (result == SendResult::kFull) return false;
  if (result == SendResult::kSent) {
    sent_messages_ += MessagesIn(frames);
    sent_bytes_ += BytesOf(frames);
    return true;
  }
  dropped_unreachable_ += MessagesIn(frames);
  LogWarning(unreachable_limiter_, "dropped {} messages: peer {} is not connected", MessagesIn(frames), to.peer.value);
  return true;
}

bool SocketSender::SendOrKeep(const LaneId& to, Frames frames) {
  return SendNow(to, frames) || backlog_.Push(to, std::move(frames));
}

bool SocketSender::SendOrKeep(const LaneId& to, const FrameView& frame) {
  return (!backlog_.Has(to) && TrySend(to, frame)) || backlog_.Push(to, {Buffer::Copy(frame.data, frame.size)});
}

void SocketSender::Flush() {
  if (backlog_.empty()) return;
  backlog_.Flush([this](const LaneId& to, const Frames& frames) { return TrySend(to, frames); });
}

void SocketSender::AddTo(TransportCounters* counters) const {
  counters->sent_messages += sent_messages_;
  counters->sent_bytes += sent_bytes_;
  counters->dropped_unreachable += dropped_unreachable_;
}

}  // namespace tarn::net
