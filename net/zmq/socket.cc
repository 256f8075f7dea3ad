#include "net/zmq/socket.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <memory>

namespace tarn::net {
namespace {

constexpr int kHandshakeMs = 3000;
constexpr int kReconnectMsMax = 2000;
// TCP detects an unreachable machine: by probes of a silent connection, after 2 + 3 x 1 s, and by unacknowledged bytes.
// Not by ZMQ_HEARTBEAT_IVL, with which libzmq may abort the process (net/README.md).
constexpr int kProbeAfterSeconds = 2, kProbeEverySeconds = 1, kProbesMissed = 3;
constexpr int kUnacknowledgedMs = 5000;
// The ZAP domain of sockets that bind. With a domain and without a ZAP handler, libzmq admits peers of ZMTP 3 as usual,
// but rejects those of ZMTP 1 and 2. Those must be rejected, because zmtp_engine_t::process_routing_id_msg aborts the
// process for them if the socket is being closed (net/README.md).
constexpr std::string_view kZapDomain = "tarn";

Error ErrorOf(std::string_view what, const zmq::error_t& error) {
  const int code = error.num();
  if (code == EADDRINUSE)
    return {ErrorCode::kAlreadyExists, fmt::format("{}: in use; choose another port, or '*' for a free one", what)};
  if (code == EINVAL || code == EPROTONOSUPPORT || code == ENODEV)
    return {ErrorCode::kInvalidArgument,
            fmt::format("{}: {}; expected tcp://HOST:PORT or ipc://PATH", what, error.what())};
  return {ErrorCode::kIo, fmt::format("{}: {}", what, error.what())};
}

template <typename Option, typename Value>
Status Set(zmq::socket_t* socket, Option option, std::string_view name, const Value& value) {
  try {
    socket->set(option, value);
    return {};
  } catch (const zmq::error_t& error) {
    return std::unexpected(ErrorOf(name, error));
  }
}

Status SetAll(zmq::socket_t* socket, zmq::socket_type type, const SocketOptions& o) {
  namespace option = zmq::sockopt;
  TARN_RETURN_IF_ERROR(Set(socket, option::linger, "ZMQ_LINGER", o.linger_ms));
  TARN_RETURN_IF_ERROR(Set(socket, option::sndhwm, "ZMQ_SNDHWM", o.high_water_mark));
  TARN_RETURN_IF_ERROR(Set(socket, option::rcvhwm, "ZMQ_RCVHWM", o.high_water_mark));
  TARN_RETURN_IF_ERROR(Set(socket, option::handshake_ivl, "ZMQ_HANDSHAKE_IVL", kHandshakeMs));
  TARN_RETURN_IF_ERROR(Set(socket, option::tcp_keepalive, "ZMQ_TCP_KEEPALIVE", 1));
  TARN_RETURN_IF_ERROR(Set(socket, option::tcp_keepalive_idle, "ZMQ_TCP_KEEPALIVE_IDLE", kProbeAfterSeconds));
  TARN_RETURN_IF_ERROR(Set(socket, option::tcp_keepalive_intvl, "ZMQ_TCP_KEEPALIVE_INTVL", kProbeEverySeconds));
  TARN_RETURN_IF_ERROR(Set(socket, option::tcp_keepalive_cnt, "ZMQ_TCP_KEEPALIVE_CNT", kProbesMissed));
  TARN_RETURN_IF_ERROR(Set(socket, option::tcp_maxrt, "ZMQ_TCP_MAXRT", kUnacknowledgedMs));
  const std::int64_t frame_bytes_max = limits::kFrameBytesMax;
  TARN_RETURN_IF_ERROR(Set(socket, option::maxmsgsize, "ZMQ_MAXMSGSIZE", frame_bytes_max));
  if (type == zmq::socket_type::router) {
    TARN_RETURN_IF_ERROR(Set(socket, option::zap_domain, "ZMQ_ZAP_DOMAIN", kZapDomain));
    // Without this option a ROUTER silently drops messages that a peer cannot accept.
    return Set(socket, option::router_mandatory, "ZMQ_ROUTER_MANDATORY", true);
  }
  // ZeroMQ queues messages only to established connections; others wait in the transport's bounded Backlog.
  TARN_RETURN_IF_ERROR(Set(socket, option::immediate, "ZMQ_IMMEDIATE", true));
  TARN_RETURN_IF_ERROR(Set(socket, option::reconnect_ivl, "ZMQ_RECONNECT_IVL", o.reconnect_ms));
  return Set(socket, option::reconnect_ivl_max, "ZMQ_RECONNECT_IVL_MAX", kReconnectMsMax);
}

// Runs on a thread of ZeroMQ when the frame is sent; the reference count of a Buffer is atomic.
void Release(void*, void* hint) noexcept { delete static_cast<Buffer*>(hint); }

template <typename... Arguments>
zmq::message_t NewMessage(Arguments... arguments) {
  try {
    return zmq::message_t(arguments...);
  } catch (const zmq::error_t&) {
    TARN_CHECK(false, "out of memory");
  }
}

zmq::message_t MakePart(const FrameView& frame) { return NewMessage(frame.data, frame.size); }
zmq::message_t MakePart(const Buffer& frame) {
  if (frame.size() <= Socket::kZeroCopyBytes) return NewMessage(frame.data(), frame.size());
  auto* owner = new Buffer(frame);
  return NewMessage(owner->data(), owner->size(), Release, owner);
}

// cppzmq throws only in rare cases: a signal, or a receiver that has disconnected.
SendResult SendPart(zmq::socket_t* socket, zmq::message_t part, bool more) {
  const auto flags = more ? zmq::send_flags::dontwait | zmq::send_flags::sndmore : zmq::send_flags::dontwait;
  for (;;) {
    try {
      return socket->send(part, flags) ? SendResult::kSent : SendResult::kFull;
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) return SendResult::kUnreachable;
    }
  }
}

// Only the first part can be rejected as full. If the connection breaks after it, ZeroMQ drops the parts written, but
// the remaining ones must still be passed to it: it drops them up to the last, so that no message begins in the middle.
template <typename Frame>
SendResult SendParts(zmq::socket_t* socket, std::string_view identity, std::span<const Frame> frames) {
  bool begun = false;
  bool broken = false;
  if (!identity.empty()) {
    const FrameView bytes{reinterpret_cast<const std::byte*>(identity.data()), identity.size()};
    const SendResult result = SendPart(socket, MakePart(bytes), true);
    if (result != SendResult::kSent) return result;
    begun = true;
  }
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const SendResult result = SendPart(socket, MakePart(frames[i]), i + 1 < frames.size());
    if (result != SendResult::kSent && !begun) return result;
    broken |= result != SendResult::kSent;
    begun = true;
  }
  return broken ? SendResult::kUnreachable : SendResult::kSent;
}

}  // namespace

bool ReceivePart(zmq::socket_t* socket, zmq::message_t* part) {
  for (;;) {
    try {
      return socket->recv(*part, zmq::recv_flags::dontwait).has_value();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) return false;
    }
  }
}

void Parts::Clear() {
  for (std::size_t i = 0; i < count_; ++i) parts_[i].rebuild();
  count_ = 0;
  bytes_ = 0;
  too_large_ = false;
}

Buffer Parts::Take(std::size_t i) {
  auto* bytes = parts_[i].data<std::byte>();
  const std::size_t size = parts_[i].size();
  if (size <= Socket::kZeroCopyBytes || reinterpret_cast<std::uintptr_t>(bytes) % 8 != 0) return {};
  return Buffer::Hold(bytes, size, std::make_shared<zmq::message_t>(std::move(parts_[i])));
}

// message_t::get throws if a message has no descriptor, as over inproc.
int Parts::connection() { return zmq_msg_get(parts_[0].handle(), ZMQ_SRCFD); }

Expected<Socket> Socket::Open(zmq::context_t* context, zmq::socket_type type, const SocketOptions& options) {
  try {
    Socket socket(zmq::socket_t(*context, type));
    TARN_RETURN_IF_ERROR(SetAll(&socket.socket_, type, options));
    return socket;
  } catch (const zmq::error_t& error) {
    return std::unexpected(ErrorOf("cannot open a socket", error));
  }
}

Status Socket::Bind(const std::string& endpoint) {
  try {
    socket_.bind(endpoint);
    return {};
  } catch (const zmq::error_t& error) {
    return std::unexpected(ErrorOf(fmt::format("cannot bind {}", endpoint), error));
  }
}

Status Socket::Connect(const std::string& endpoint) {
  try {
    socket_.connect(endpoint);
    return {};
  } catch (const zmq::error_t& error) {
    return std::unexpected(ErrorOf(fmt::format("cannot connect to {}", endpoint), error));
  }
}

std::string Socket::LastEndpoint() const {
  try {
    return socket_.get(zmq::sockopt::last_endpoint);
  } catch (const zmq::error_t&) {
    return {};
  }
}

SendResult Socket::Send(std::string_view identity, std::span<const Buffer> frames) {
  return SendParts(&socket_, identity, frames);
}

SendResult Socket::Send(std::string_view identity, const FrameView& frame) {
  return SendParts(&socket_, identity, std::span<const FrameView>(&frame, 1));
}

int Socket::file() const {
  try {
    return socket_.get(zmq::sockopt::fd);
  } catch (const zmq::error_t&) {
    TARN_CHECK(false, "every socket has a file");
  }
}

void Socket::DropUnsent() { [[maybe_unused]] const Status set = Set(&socket_, zmq::sockopt::linger, "ZMQ_LINGER", 0); }

bool Socket::Receive(Parts* parts) {
  parts->Clear();
  for (bool first = true;; first = false) {
    zmq::message_t& part = parts->parts_[parts->count_];
    if (!ReceivePart(&socket_, &part)) return !first;
    const bool more = part.more();
    parts->bytes_ += part.size();
    parts->too_large_ |= parts->count_ == Parts::kMax || parts->bytes_ > limits::kMessageBytesMax;
    if (parts->too_large_) {
      part.rebuild();
    } else {
      ++parts->count_;
    }
    if (!more) return true;
  }
}

}  // namespace tarn::net
