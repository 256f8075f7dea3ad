// Monitors the connections that a socket accepts: counts those that fail before their first message (not ZeroMQ,
// another mechanism, not admitted), and closes those whose unfinished message exceeds a limit.
//
// ZeroMQ stores the parts of a message until the last has arrived, without a limit: ZMQ_MAXMSGSIZE limits one part, the
// high-water mark limits complete messages. So this class asks the kernel how much a TCP connection has received
// (TCP_INFO) since its last complete message, and shuts it down beyond a bound; ZeroMQ then frees the parts.
// Connections over ipc are not checked, because their peers could stop the process anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <zmq.hpp>

#include "core/error.h"

namespace tarn::net {

// Owned by the thread of the socket, which outlives it.
class ConnectionWatch {
 public:
  ConnectionWatch() = default;
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  // Must be called before the socket is bound. kIo if the monitor cannot be created.
  Status Watch(zmq::context_t* context, zmq::socket_t* socket);

  // Reads all queued events. Returns the number of connections that have failed since the last call.
  std::uint64_t Take();

  // A complete message was received over the connection with this file descriptor (ZMQ_SRCFD of its parts).
  void OnMessage(int connection);

  // Call it regularly, when the socket has no complete message. Shuts down connections that had received more than
  // `bytes_max` of an unfinished message at the previous call and have not completed it since. Returns their number.
  std::uint64_t CloseOversizedSenders(std::uint64_t bytes_max);

 private:
  struct Connection {
    std::uint64_t cookie = 0;    // unique number from the kernel, because descriptors are reused
    std::uint64_t base = 0;      // bytes received at the check after the last message
    std::uint64_t received = 0;  // at the last CloseOversizedSenders
    bool message = true;         // a message was received since the last CloseOversizedSenders
  };

  zmq::socket_ref watched_;
  zmq::socket_t events_;
  std::map<int, Connection> connections_;  // by file descriptor
};

}  // namespace tarn::net
