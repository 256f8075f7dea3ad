#include "net/zmq_monitor.h"

#include <fmt/format.h>
#include <zmq.h>

#include <string>

namespace tarn::net {

HandshakeMonitor::~HandshakeMonitor() {
  if (watched_ != nullptr) zmq_socket_monitor(watched_, nullptr, 0);
  if (events_ != nullptr) zmq_close(events_);
}

Status HandshakeMonitor::Watch(void* context, void* socket) {
  const std::string endpoint = fmt::format("inproc://tarn-handshakes-{}", fmt::ptr(socket));
  constexpr int kFailures =
      ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  if (zmq_socket_monitor(socket, endpoint.c_str(), kFailures) != 0)
    return Fail(ErrorCode::kIo, fmt::format("cannot watch a socket: {}", zmq_strerror(zmq_errno())));
  watched_ = socket;
  events_ = zmq_socket(context, ZMQ_PAIR);
  const int none = 0;
  if (events_ == nullptr || zmq_setsockopt(events_, ZMQ_LINGER, &none, sizeof(none)) != 0 ||
      zmq_connect(events_, endpoint.c_str()) != 0)
    return Fail(ErrorCode::kIo, fmt::format("cannot watch a socket: {}", zmq_strerror(zmq_errno())));
  return {};
}

std::uint64_t HandshakeMonitor::Take() {
  std::uint64_t parts = 0;
  zmq_msg_t part;
  zmq_msg_init(&part);
  while (events_ != nullptr && zmq_msg_recv(&part, events_, ZMQ_DONTWAIT) >= 0) ++parts;
  zmq_msg_close(&part);
  return parts / 2;  // each event: its number, then the address
}

}  // namespace tarn::net
