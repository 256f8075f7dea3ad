// The Transport over ZeroMQ: one ROUTER for all who connect to us, one DEALER or several for each peer that we connect
// to.
//
//   ZmqContext context({.io_threads = 1});              // one per process, outlives its transports
//   ZmqTransport transport(&context, {});
//   auto endpoint = transport.Bind(*context.folders().Make(run_dir, "shard-0"));
//
// A peer that connects again (its process, or its link, was restarted) is a new Peer, and so is each of its lanes: what
// is asked by one is answered by it. What arrives and is no message
// is counted, logged once a second at most, answered with ErrorReply{kMalformed} (kWrongJob: another version) if it
// came through the ROUTER, and has no other effect.
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
  // Accepts plain TCP connections, and Unix sockets in any folder. Anyone who reaches them can then read and change the
  // job.
  bool insecure = false;
  int linger_ms = 1000;     // how long unsent messages may outlive the transport
  int heartbeat_ms = 1000;  // ZeroMQ's own, per connection; silent for 5 of them: disconnected
  int reconnect_ms = 20;    // first pause before connecting again; doubles up to 2 seconds
  int high_water_mark = limits::kSocketHighWaterMark;          // messages inside ZeroMQ, per peer and direction
  std::size_t backlog_bytes_max = limits::kBacklogBytesMax;    // behind that, per peer
  std::size_t accepted_peers_max = limits::kAcceptedPeersMax;  // beyond, those unheard for longest are forgotten
  // Of a connection to us since its last whole message; one that goes on beyond is ended.
  std::size_t unfinished_bytes_max = 2 * limits::kMessageBytesMax;
  // With processes of this host and this user, other than the scheduler, by shared memory (net/shm_peers.h).
  bool shm = true;
  std::uint32_t lanes = 1;  // SetLanes
  // Large payloads from shared memory stay where they lie, and are good only until the next Receive: for whoever copies
  // rows out as they come (Buffer::lent tells). Whoever keeps one is stopped (TARN_CHECK).
  bool lend_payloads = false;
  std::size_t shm_ring_bytes = limits::kShmRingBytes;  // of each direction; a power of two, 64 KiB at least
};

class ZmqTransport final : public Transport {
 public:
  ZmqTransport(ZmqContext* context, const ZmqTransportOptions& options);
  ~ZmqTransport() override;

  // Returns the address with the port that the system chose. kAlreadyExists: the port is in use. kInvalidArgument: not
  // an endpoint; or, while neither keys nor `insecure` are given, one that other users of this host can reach: TCP, or
  // a Unix socket in a folder that is not private (net/local_endpoint.h).
  Expected<std::string> Bind(const std::string& endpoint) override;
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
