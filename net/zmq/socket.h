// One ZeroMQ socket, without exceptions and without blocking: the thin layer that calls cppzmq and makes errors of its
// exceptions. Only sources of net/zmq, and headers that only they include, include this.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <zmq.hpp>

#include "core/buffer.h"
#include "core/error.h"
#include "core/limits.h"
#include "net/frame.h"

namespace tarn::net {

// Receives one part without waiting. False: there is none.
bool ReceivePart(zmq::socket_t* socket, zmq::message_t* part);

// A received message's parts; owns them.
class Parts {
 public:
  // Identity and frames; what comes beyond a limit is dropped as it is received.
  static constexpr std::size_t kMax = 1 + limits::kFramesMax;

  std::size_t count() const { return count_; }
  FrameView operator[](std::size_t i) const { return {parts_[i].data<std::byte>(), parts_[i].size()}; }
  // A large part's bytes without a copy, good after Clear; empty if the part is small or badly aligned.
  Buffer Take(std::size_t i);
  // The message had more parts or bytes than the limits allow; those kept are only its beginning.
  bool too_large() const { return too_large_; }
  std::size_t bytes() const { return bytes_; }
  // The file descriptor of the connection that it came over; below 0: unknown. Not empty.
  int connection();
  void Clear();

 private:
  friend class Socket;
  std::array<zmq::message_t, kMax + 1> parts_;  // the last: while receiving
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
  bool too_large_ = false;
};

enum class SendResult { kSent, kFull, kUnreachable };

struct SocketOptions {
  int high_water_mark = 0;
  int linger_ms = 0;
  int heartbeat_ms = 0;
  int reconnect_ms = 0;
};

// Owned by one thread.
class Socket {
 public:
  // `type` is router or dealer. kIo if the context has no more sockets or files.
  static Expected<Socket> Open(zmq::context_t* context, zmq::socket_type type, const SocketOptions& options);

  Status Bind(const std::string& endpoint);
  Status Connect(const std::string& endpoint);
  std::string LastEndpoint() const;
  // What is not sent yet will not linger when the socket is closed.
  void DropUnsent();

  // All frames or none. `identity`: the receiver's, for a ROUTER; empty for a DEALER. Frames of more than
  // kZeroCopyBytes are not copied but held until they have left. kFull: try later. kUnreachable: the receiver is gone.
  SendResult Send(std::string_view identity, std::span<const Buffer> frames);
  // The same for one frame, which is copied.
  SendResult Send(std::string_view identity, const FrameView& frame);

  // Whether a message was there. Takes all of it from the socket, whatever its size.
  bool Receive(Parts* parts);

  zmq::socket_t& raw() { return socket_; }

  // A file that becomes readable when something has happened to the socket (ZMQ_FD). It says so once: what it announced
  // may be taken in by any Send or Receive, so only a Receive that finds nothing tells that it is safe to wait for it.
  int file() const;

  static constexpr std::size_t kZeroCopyBytes = 16 << 10;

 private:
  explicit Socket(zmq::socket_t socket) : socket_(std::move(socket)) {}

  zmq::socket_t socket_;
};

}  // namespace tarn::net
