// The sockets of one shard: binds them, connects them to the scheduler, and determines the endpoint under which workers
// reach the shard. The shard's thread, except Wake.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/types.h"
#include "net/slow_transport.h"
#include "net/transport.h"
#include "net/zmq/transport.h"
#include "server/loop.h"

namespace tarn::server {

class ShardSockets {
 public:
  // Of shard `index` of the server. Context and options outlive this object.
  ShardSockets(net::ZmqContext* context, const ServerOptions& options, std::uint32_t index);

  // Binds and connects. Returns the endpoint that workers must use. The error names the endpoint that cannot be used.
  Expected<std::string> Open();
  // The transport that sends and receives; it delays messages if the options say so.
  net::Transport& transport() { return slow_ ? static_cast<net::Transport&>(*slow_) : sockets_; }
  // Ends a wait for messages. Any thread.
  void Wake() { sockets_.Wake(); }

 private:
  ShardId shard() const { return ShardOf(options_, index_); }
  std::string LocalName() const;

  net::ZmqContext* context_;
  const ServerOptions& options_;
  std::uint32_t index_;
  net::ZmqTransport sockets_;
  std::optional<net::SlowTransport> slow_;  // delays the messages of sockets_
};

// The endpoint of shard `index` of a server bound to `bind`: for tcp://HOST:PORT with a number other than 0, PORT +
// `index`; for ipc://PATH and an index above 0, PATH-`index`; otherwise `bind` itself. kInvalidArgument: PORT is not a
// number, or the sum is above 65535.
Expected<std::string> ShardEndpoint(const std::string& bind, std::uint32_t index);

}  // namespace tarn::server
