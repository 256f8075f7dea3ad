// A ZeroMQ socket without exceptions and without blocking: calls cppzmq and converts its exceptions to errors. Included
// only within net/zmq.
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

// Receives one part without blocking. False: there is none.
bool ReceivePart(zmq::socket_t* socket, zmq::message_t* part);

// The parts of a received message. Owns them.
class Parts {
 public:
  // Identity and frames. Further parts are dropped when they are received.
  static constexpr std::size_t kMax = 1 + limits::kFramesMax;

  std::size_t count() const { return count_; }
  FrameView operator[](std::size_t i) const { return {parts_[i].data<std::byte>(), parts_[i].size()}; }
  // A large part's bytes without a copy, valid after Clear; empty if the part is small or not aligned.
  Buffer Take(std::size_t i);
  // Whether the message exceeded the limit of parts or bytes; the parts are then its beginning.
  bool too_large() const { return too_large_; }
  std::size_t bytes() const { return bytes_; }
  // The file descriptor of the connection of the message; < 0: unknown. There must be a part.
  int connection();
  void Clear();

 private:
  friend class Socket;
  std::array<zmq::message_t, kMax + 1> parts_;  // the last one receives the parts beyond kMax, which are dropped
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
  bool too_large_ = false;
};

enum class SendResult { kSent, kFull, kUnreachable };

struct SocketOptions {
  int high_water_mark = 0;
  int linger_ms = 0;
  int reconnect_ms = 0;
};

// Owned by one thread.
class Socket {
 public:
  // `type` is router or dealer. kIo if the context has no sockets or files left.
  static Expected<Socket> Open(zmq::context_t* context, zmq::socket_type type, const SocketOptions& options);

  // kAlreadyExists: the endpoint is in use. kInvalidArgument: ZeroMQ does not accept it. kIo: other errors.
  Status Bind(const std::string& endpoint);
  // Returns before the connection is established. Errors as of Bind.
  Status Connect(const std::string& endpoint);
  // The endpoint of the last Bind or Connect, with the chosen port; empty if there is none.
  std::string LastEndpoint() const;
  // From now on closing the socket drops its unsent messages.
  void DropUnsent();

  // Sends all frames or none. `identity`: the receiver's, for a ROUTER; empty for a DEALER. Frames of more than
  // kZeroCopyBytes are not copied but shared until they are sent. kFull: try later. kUnreachable: the receiver has
  // disconnected.
  SendResult Send(std::string_view identity, std::span<const Buffer> frames);
  // The same for one frame, which is copied.
  SendResult Send(std::string_view identity, const FrameView& frame);

  // Receives a whole message, whatever its size. False: there is none.
  bool Receive(Parts* parts);

  zmq::socket_t& raw() { return socket_; }

  // A file that becomes readable at events of the socket (ZMQ_FD). It is edge-triggered: any Send or Receive may
  // consume an event, so it is safe to wait only after a Receive that found nothing.
  int file() const;

  static constexpr std::size_t kZeroCopyBytes = 16 << 10;

 private:
  explicit Socket(zmq::socket_t socket) : socket_(std::move(socket)) {}

  zmq::socket_t socket_;
};

}  // namespace tarn::net
