// Watches the connections that a socket accepts: counts those that fail before they carry a message (no ZeroMQ, another
// mechanism, not admitted), and ends those that send a message without end.
//
// ZeroMQ keeps the parts of a message until the last has come, and none of its limits counts them: ZMQ_MAXMSGSIZE is of
// one part, the high-water mark of whole messages. So we ask the kernel how much a TCP connection has received
// (TCP_INFO) since its last whole message, and shut it down beyond a bound; ZeroMQ then frees what it kept. Connections
// over ipc are not seen: whoever reaches those may as well stop the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <zmq.hpp>

#include "core/error.h"

namespace tarn::net {

// Owned by the thread of the socket that it watches, and gone before it.
class ConnectionWatch {
 public:
  ConnectionWatch() = default;
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  // Before the socket is bound.
  Status Watch(zmq::context_t* context, zmq::socket_t* socket);

  // Takes in what has happened. Returns how many connections have failed since the last call.
  std::uint64_t Take();

  // A whole message came over the connection with this file descriptor (ZMQ_SRCFD of its parts).
  void OnMessage(int connection);

  // To be called now and then, when the socket has just been seen empty of whole messages: shuts down connections that
  // were beyond `bytes_max` without one at the call before already. Returns how many.
  std::uint64_t EndEndless(std::uint64_t bytes_max);

 private:
  struct Connection {
    std::uint64_t cookie = 0;    // the kernel's, never reused; the descriptor's number is
    std::uint64_t base = 0;      // bytes received when a message had last come
    std::uint64_t received = 0;  // at the last EndEndless
    bool message = true;         // one has come since then
  };

  zmq::socket_ref watched_;
  zmq::socket_t events_;
  std::map<int, Connection> connections_;  // by file descriptor
};

}  // namespace tarn::net
