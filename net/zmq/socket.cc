#include "net/zmq/socket.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tarn::net {
namespace {

constexpr int kHandshakeMs = 3000;
constexpr int kReconnectMsMax = 2000;
constexpr int kHeartbeatsMissed = 5;
// Of the sockets that bind. With a domain, and without a ZAP handler, libzmq admits peers of ZMTP 3 as it does without
// one, and rejects those of ZMTP 1 and 2. Those end in zmtp_engine_t::process_routing_id_msg, which aborts the process
// if the socket is being closed (net/README.md).
constexpr std::string_view kZapDomain = "tarn";

Error ZmqError(std::string_view what) {
  const int code = zmq_errno();
  if (code == EADDRINUSE)
    return {ErrorCode::kAlreadyExists, fmt::format("{}: in use; choose another port, or '*' for a free one", what)};
  if (code == EINVAL || code == EPROTONOSUPPORT || code == ENODEV)
    return {ErrorCode::kInvalidArgument,
            fmt::format("{}: {}; expected tcp://HOST:PORT or ipc://PATH", what, zmq_strerror(code))};
  return {ErrorCode::kIo, fmt::format("{}: {}", what, zmq_strerror(code))};
}

Status Set(void* socket, int option, const char* name, int value) {
  if (zmq_setsockopt(socket, option, &value, sizeof(value)) == 0) return {};
  return std::unexpected(ZmqError(name));
}

Status SetAll(void* socket, int type, const SocketOptions& o) {
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_LINGER, "ZMQ_LINGER", o.linger_ms));
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_SNDHWM, "ZMQ_SNDHWM", o.high_water_mark));
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_RCVHWM, "ZMQ_RCVHWM", o.high_water_mark));
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_HANDSHAKE_IVL, "ZMQ_HANDSHAKE_IVL", kHandshakeMs));
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_HEARTBEAT_IVL, "ZMQ_HEARTBEAT_IVL", o.heartbeat_ms));
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_HEARTBEAT_TIMEOUT, "ZMQ_HEARTBEAT_TIMEOUT", kHeartbeatsMissed * o.heartbeat_ms));
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_HEARTBEAT_TTL, "ZMQ_HEARTBEAT_TTL", kHeartbeatsMissed * o.heartbeat_ms));
  const std::int64_t frame_bytes_max = limits::kFrameBytesMax;
  if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_bytes_max, sizeof(frame_bytes_max)) != 0)
    return std::unexpected(ZmqError("ZMQ_MAXMSGSIZE"));
  // Without it a ROUTER drops silently what a peer cannot take.
  if (type == ZMQ_ROUTER) {
    if (zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, kZapDomain.data(), kZapDomain.size()) != 0)
      return std::unexpected(ZmqError("ZMQ_ZAP_DOMAIN"));
    return Set(socket, ZMQ_ROUTER_MANDATORY, "ZMQ_ROUTER_MANDATORY", 1);
  }
  // Queue only to connections that stand: what waits stays in our own, bounded backlog.
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_IMMEDIATE, "ZMQ_IMMEDIATE", 1));
  TARN_RETURN_IF_ERROR(Set(socket, ZMQ_RECONNECT_IVL, "ZMQ_RECONNECT_IVL", o.reconnect_ms));
  return Set(socket, ZMQ_RECONNECT_IVL_MAX, "ZMQ_RECONNECT_IVL_MAX", kReconnectMsMax);
}

// Runs on a thread of ZeroMQ when the frame has left: the count of a Buffer's owners is atomic.
void Release(void*, void* hint) noexcept { delete static_cast<Buffer*>(hint); }

void InitPart(zmq_msg_t* part, const void* bytes, std::size_t size) {
  TARN_CHECK(zmq_msg_init_size(part, size) == 0, "out of memory");
  if (size != 0) std::memcpy(zmq_msg_data(part), bytes, size);
}

void MakePart(zmq_msg_t* part, const FrameView& frame) { InitPart(part, frame.data, frame.size); }

void MakePart(zmq_msg_t* part, const Buffer& frame) {
  if (frame.size() <= Socket::kZeroCopyBytes) return InitPart(part, frame.data(), frame.size());
  auto* owner = new Buffer(frame);
  TARN_CHECK(zmq_msg_init_data(part, owner->data(), owner->size(), Release, owner) == 0, "out of memory");
}

SendResult SendPart(void* socket, zmq_msg_t* part, bool more) {
  for (;;) {
    if (zmq_msg_send(part, socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0) return SendResult::kSent;
    if (zmq_errno() == EINTR) continue;
    const SendResult result = zmq_errno() == EAGAIN ? SendResult::kFull : SendResult::kUnreachable;
    zmq_msg_close(part);
    return result;
  }
}

// ZeroMQ says "full" only to the first part. If the connection breaks after it, the parts written are gone, and the
// others must still be given to it: it drops them too, up to the last, so that no message begins in the middle.
template <typename Frame>
SendResult SendParts(void* socket, std::string_view identity, std::span<const Frame> frames) {
  bool begun = false;
  bool broken = false;
  if (!identity.empty()) {
    zmq_msg_t part;
    InitPart(&part, identity.data(), identity.size());
    const SendResult result = SendPart(socket, &part, true);
    if (result != SendResult::kSent) return result;
    begun = true;
  }
  for (std::size_t i = 0; i < frames.size(); ++i) {
    zmq_msg_t part;
    MakePart(&part, frames[i]);
    const SendResult result = SendPart(socket, &part, i + 1 < frames.size());
    if (result != SendResult::kSent && !begun) return result;
    broken |= result != SendResult::kSent;
    begun = true;
  }
  return broken ? SendResult::kUnreachable : SendResult::kSent;
}

}  // namespace

void Parts::Clear() {
  for (std::size_t i = 0; i < count_; ++i) zmq_msg_close(&parts_[i]);
  count_ = 0;
  bytes_ = 0;
  too_large_ = false;
}

Buffer Parts::Take(std::size_t i) {
  auto* bytes = static_cast<std::byte*>(zmq_msg_data(&parts_[i]));
  const std::size_t size = zmq_msg_size(&parts_[i]);
  if (size <= Socket::kZeroCopyBytes || reinterpret_cast<std::uintptr_t>(bytes) % 8 != 0) return {};
  auto* empty = new zmq_msg_t;
  zmq_msg_init(empty);
  const std::shared_ptr<zmq_msg_t> held(empty, [](zmq_msg_t* message) {
    zmq_msg_close(message);
    delete message;
  });
  zmq_msg_move(held.get(), &parts_[i]);
  return Buffer::Hold(bytes, size, held);
}

Expected<Socket> Socket::Open(void* context, int type, const SocketOptions& options) {
  void* handle = zmq_socket(context, type);
  if (handle == nullptr) return std::unexpected(ZmqError("a new socket"));
  Socket socket(handle);
  TARN_RETURN_IF_ERROR(SetAll(handle, type, options));
  return socket;
}

Status Socket::Bind(const std::string& endpoint) {
  if (zmq_bind(socket_.get(), endpoint.c_str()) == 0) return {};
  return std::unexpected(ZmqError(fmt::format("cannot bind {}", endpoint)));
}

Status Socket::Connect(const std::string& endpoint) {
  if (zmq_connect(socket_.get(), endpoint.c_str()) == 0) return {};
  return std::unexpected(ZmqError(fmt::format("cannot connect to {}", endpoint)));
}

std::string Socket::LastEndpoint() const {
  std::array<char, 512> text{};
  std::size_t size = text.size();
  if (zmq_getsockopt(socket_.get(), ZMQ_LAST_ENDPOINT, text.data(), &size) != 0) return {};
  return text.data();
}

SendResult Socket::Send(std::string_view identity, std::span<const Buffer> frames) {
  return SendParts(socket_.get(), identity, frames);
}

SendResult Socket::Send(std::string_view identity, const FrameView& frame) {
  return SendParts(socket_.get(), identity, std::span<const FrameView>(&frame, 1));
}

int Socket::file() const {
  int file = -1;
  std::size_t size = sizeof(file);
  TARN_CHECK(zmq_getsockopt(socket_.get(), ZMQ_FD, &file, &size) == 0, "every socket has a file");
  return file;
}

void Socket::DropUnsent() {
  const int none = 0;
  zmq_setsockopt(socket_.get(), ZMQ_LINGER, &none, sizeof(none));
}

bool Socket::Receive(Parts* parts) {
  parts->Clear();
  for (bool first = true;; first = false) {
    zmq_msg_t* part = &parts->parts_[parts->count_];
    zmq_msg_init(part);
    int size = -1;
    do {
      size = zmq_msg_recv(part, socket_.get(), ZMQ_DONTWAIT);
    } while (size < 0 && zmq_errno() == EINTR);
    if (size < 0) {
      zmq_msg_close(part);
      return !first;
    }
    const bool more = zmq_msg_more(part) != 0;
    parts->bytes_ += static_cast<std::size_t>(size);
    parts->too_large_ |= parts->count_ == Parts::kMax || parts->bytes_ > limits::kMessageBytesMax;
    if (parts->too_large_) {
      zmq_msg_close(part);
    } else {
      ++parts->count_;
    }
    if (!more) return true;
  }
}

}  // namespace tarn::net
