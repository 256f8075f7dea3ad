#include "net/zmq/router.h"

#include <string_view>
#include <utility>

#include "net/zmq/clock.h"

namespace tarn::net {
namespace {

constexpr TimeUs kCountPeriodUs = 100'000;
constexpr TimeUs kOversizedCheckPeriodUs = 100'000;

}  // namespace

Expected<std::string> Router::Bind(ZmqContext* context, const std::string& address) {
  if (!socket_) {
    Expected<PolledSocket> socket = PolledSocket::Open(context, zmq::socket_type::router, options_.socket);
    if (!socket) return std::unexpected(socket.error());
    socket_.emplace(std::move(*socket));
    TARN_RETURN_IF_ERROR(connections_.Watch(context->raw(), &socket_->socket.raw()));
  }
  TARN_RETURN_IF_ERROR(socket_->socket.Bind(address));
  return socket_->socket.LastEndpoint();
}

template <typename What>
SendResult Router::SendAny(Peer to, const What& frames) {
  const std::string_view identity = peers_.IdentityOf(to);
  const SendResult result = identity.empty() ? SendResult::kUnreachable : socket_->Send(identity, frames);
  if (result == SendResult::kUnreachable) peers_.Forget(to);
  return result;
}
SendResult Router::Send(Peer to, const Frames& frames) { return SendAny(to, frames); }
SendResult Router::Send(Peer to, const FrameView& frame) { return SendAny(to, frame); }

Peer Router::SenderOf(Parts* message) {
  const FrameView identity = (*message)[0];
  connections_.OnMessage(message->connection());
  return peers_.Intern({reinterpret_cast<const char*>(identity.data), identity.size});
}

void Router::CountFailures(TimeUs now) {
  if (now < next_count_) return;
  next_count_ = NowUs() + kCountPeriodUs;
  failures_ += connections_.Take();
}

std::uint64_t Router::CloseOversizedSenders() {
  if (!socket_ || socket_->may_hold || NowUs() < next_oversized_check_) return 0;
  next_oversized_check_ = NowUs() + kOversizedCheckPeriodUs;
  return connections_.CloseOversizedSenders(options_.unfinished_bytes_max);
}

}  // namespace tarn::net
