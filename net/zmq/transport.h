// The Transport over ZeroMQ: one ROUTER for all peers that connect to this node, and one or more DEALERs for each peer
// to which this node connects.
//
//   ZmqContext context({.io_threads = 1});              // one per program, outlives its transports
//   ZmqTransport transport(&context, {});
//   auto endpoint = transport.Bind(*context.folders().Make(run_dir, "shard-0"));
//
// A peer that reconnects is a new Peer, and so is each of its lanes; a request is answered on its lane. Invalid
// messages are counted, logged at most once a second, and answered with ErrorReply{kMalformed} (kWrongJob: another
// version) if a peer that connected to this node sent them. They have no other effect, except those of another version
// from peers to which this node connected (Transport::Receive).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/limits.h"
#include "net/transport.h"
#include "net/zmq/context.h"

namespace tarn::net {

struct ZmqTransportOptions {
  // Accepts TCP connections without encryption, and Unix sockets in any directory. Anyone who can reach them can then
  // read and change the job.
  bool insecure = false;
  int linger_ms = 1000;                                      // time for unsent messages after the transport's end
  int reconnect_ms = 20;                                     // first pause before a reconnect; doubles up to 2 seconds
  int high_water_mark = limits::kSocketHighWaterMark;        // messages inside ZeroMQ, per peer and direction
  std::size_t backlog_bytes_max = limits::kBacklogBytesMax;  // in addition to that, per peer
  std::size_t accepted_peers_max = limits::kAcceptedPeersMax;  // beyond this, those silent for longest are removed
  // Bytes of an accepted connection since its last complete message; beyond this it is closed.
  std::size_t unfinished_bytes_max = 2 * limits::kMessageBytesMax;
  // Use shared memory with processes of this host and user, except the scheduler (net/shm_peers.h).
  bool shm = true;
  std::uint32_t lanes = 1;  // see SetLanes
  // Do not copy large payloads from shared memory (Buffer::lent): they are valid only until the next Receive. Keeping
  // one longer fails a TARN_CHECK. For clients that copy rows on arrival.
  bool lend_payloads = false;
  std::size_t shm_ring_bytes = limits::kShmRingBytes;  // per direction; a power of two from 64 KiB to 1 GiB
};

class ZmqTransport final : public Transport {
 public:
  ZmqTransport(ZmqContext* context, const ZmqTransportOptions& options);
  ~ZmqTransport() override;

  // Returns the endpoint with the chosen port. kAlreadyExists: the port or Unix socket is in use; if two processes bind
  // a Unix socket at the same moment, the second may take it over. kInvalidArgument: not an endpoint; or, without keys
  // and `insecure`, an endpoint that other users of this host can reach: TCP, or a Unix socket in a directory that is
  // not private (net/local_endpoint.h).
  Expected<std::string> Bind(const std::string& endpoint) override;
  // kInvalidArgument: as for Bind. kNotFound: the directory of a Unix socket is missing. kIo: no socket or file is
  // left.
  Status Connect(Peer peer, const std::string& endpoint) override;
  void Send(Peer to, const Message& message) override;
  void Send(std::span<const Outgoing> outgoing) override;
  std::size_t Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) override;
  void Wake() override;
  void SetBusyPoll(std::int64_t us) override;
  void SetLanes(std::uint32_t lanes) override;
  TransportCounters counters() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::net
