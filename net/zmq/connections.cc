#include "net/zmq/connections.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string>

#include "net/zmq/socket.h"

namespace tarn::net {
namespace {

constexpr int kFailures =
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr int kChanges = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED;

// The first part of an event as ZeroMQ writes it; the second is the address.
struct Event {
  std::uint16_t what = 0;
  std::int32_t value = 0;  // of kChanges: the file descriptor
};
constexpr std::size_t kEventBytes = 6;

template <typename Value>
std::optional<Value> Option(int connection, int level, int name, std::size_t bytes_min) {
  Value value{};
  socklen_t size = sizeof(value);
  if (getsockopt(connection, level, name, &value, &size) != 0 || size < bytes_min) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> Cookie(int connection) {
  return Option<std::uint64_t>(connection, SOL_SOCKET, SO_COOKIE, sizeof(std::uint64_t));
}

// Bytes that the connection has received so far. nullopt: it is not TCP, or already closed.
std::optional<std::uint64_t> BytesReceived(int connection) {
  constexpr std::size_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) + sizeof(tcp_info::tcpi_bytes_received);
  const auto info = Option<tcp_info>(connection, IPPROTO_TCP, TCP_INFO, kNeeded);
  return info ? std::optional<std::uint64_t>(info->tcpi_bytes_received) : std::nullopt;
}

}  // namespace

ConnectionWatch::~ConnectionWatch() {
  if (watched_ != nullptr) zmq_socket_monitor(watched_.handle(), nullptr, 0);
}

// Not zmq::monitor_t: that connects its socket before its high-water mark can be set.
Status ConnectionWatch::Watch(zmq::context_t* context, zmq::socket_t* socket) {
  const std::string endpoint = fmt::format("inproc://tarn-connections-{}", fmt::ptr(socket->handle()));
  try {
    if (zmq_socket_monitor(socket->handle(), endpoint.c_str(), kFailures | kChanges) != 0) throw zmq::error_t();
    watched_ = *socket;
    events_ = zmq::socket_t(*context, zmq::socket_type::pair);
    events_.set(zmq::sockopt::linger, 0);
    // No bound: ZeroMQ's thread would wait for room while it holds a lock that the destructor needs. Take empties the
    // queue.
    events_.set(zmq::sockopt::rcvhwm, 0);
    events_.connect(endpoint);
    return {};
  } catch (const zmq::error_t& error) {
    return Fail(ErrorCode::kIo, fmt::format("cannot watch a socket: {}", error.what()));
  }
}

std::uint64_t ConnectionWatch::Take() {
  std::uint64_t failures = 0;
  zmq::message_t part;
  while (events_.handle() != nullptr && ReceivePart(&events_, &part)) {
    if (!part.more() || part.size() != kEventBytes) continue;  // the address
    const auto* bytes = part.data<std::byte>();
    Event event;
    std::memcpy(&event.what, bytes, sizeof(event.what));
    std::memcpy(&event.value, bytes + sizeof(event.what), sizeof(event.value));
    if ((event.what & kFailures) != 0) ++failures;
    if (event.what == ZMQ_EVENT_DISCONNECTED) connections_.erase(event.value);
    if (event.what != ZMQ_EVENT_ACCEPTED) continue;
    const auto cookie = Cookie(event.value);
    if (cookie && BytesReceived(event.value)) connections_[event.value] = {.cookie = *cookie};
  }
  return failures;
}

void ConnectionWatch::OnMessage(int connection) {
  if (const auto it = connections_.find(connection); it != connections_.end()) it->second.message = true;
}

std::uint64_t ConnectionWatch::CloseOversizedSenders(std::uint64_t bytes_max) {
  std::uint64_t ended = 0;
  for (auto it = connections_.begin(); it != connections_.end();) {
    auto& [descriptor, connection] = *it;
    const auto received = BytesReceived(descriptor);
    // Closed, and its descriptor number may be reused by now.
    if (!received || Cookie(descriptor) != connection.cookie) {
      it = connections_.erase(it);
      continue;
    }
    const bool oversized = !connection.message && connection.received - connection.base > bytes_max;
    if (connection.message) connection.base = *received;
    connection.received = *received;
    connection.message = false;
    ++it;
    if (!oversized) continue;
    // After the shutdown ZeroMQ reads the end of the stream and closes the connection. The linger time of 0 makes this
    // a reset, because a peer that waits for room to send would not notice an orderly end.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    shutdown(descriptor, SHUT_RDWR);
    ++ended;
  }
  return ended;
}

}  // namespace tarn::net
