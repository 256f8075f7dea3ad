// The Transport over ZeroMQ: one ROUTER for all who connect to us, one DEALER for each peer that we connect to.
//
//   ZmqContext context({.io_threads = 1});              // one per process, outlives its transports
//   ZmqTransport transport(&context, {});
//   auto endpoint = transport.Bind("tcp://127.0.0.1:*");
//
// A peer that connects again (its process, or its link, was restarted) is a new Peer. What arrives and is no message
// is counted, logged once a second at most, answered with ErrorReply{kMalformed} (kWrongJob: another version) if it
// came through the ROUTER, and has no other effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/limits.h"
#include "net/transport.h"
#include "net/zmq_curve.h"

namespace tarn::net {

// Keeps large freed blocks in the process instead of returning them to the system, so that each received frame does
// not map and fault its pages anew (glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD). Idempotent.
void KeepLargeBlocks();

struct ZmqContextOptions {
  int io_threads = 1;       // more help only with several connections of more than 1 GB/s
  int sockets_max = 65536;  // a transport uses one, and one more for each peer that it connects to
};

// ZeroMQ's threads, and the keys. Exactly one per process. Destroying it waits until what was sent has left, at most
// as long as its transports linger; they must be gone before. Free to use from any thread.
class ZmqContext {
 public:
  // Also calls KeepLargeBlocks.
  explicit ZmqContext(const ZmqContextOptions& options = {});
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  // From now on all connections are encrypted and only holders of `keys` are admitted, which it proves first. Once,
  // before the first transport. An error leaves a context that must not be used.
  Status Secure(const CurveKeys& keys);

  // Secure with the keys of a file (LoadCurveKeys); no path: plain connections. What programs do with --keys.
  Status SecureFromFile(const std::string& path);

  void* handle() const { return context_; }
  // Null: plain connections.
  const CurveKeys* keys() const { return gate_ ? &keys_ : nullptr; }

 private:
  void* context_;
  CurveKeys keys_;
  std::unique_ptr<CurveGate> gate_;
};

struct ZmqTransportOptions {
  // Lets plain connections leave this machine. Anyone who reaches the port can then read and change the job.
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
  // Large payloads from shared memory stay where they lie, and are good only until the next Receive: for a worker,
  // whose client copies rows out as they come. Whoever keeps one is stopped (TARN_CHECK).
  bool lend_payloads = false;
  std::size_t shm_ring_bytes = limits::kShmRingBytes;  // of each direction; a power of two, 64 KiB at least
};

// Whether `endpoint` stays on this machine: ipc, inproc, or tcp on 127.0.0.0/8, [::1] or localhost.
bool IsLoopback(const std::string& endpoint);

class ZmqTransport final : public Transport {
 public:
  ZmqTransport(ZmqContext* context, const ZmqTransportOptions& options);
  ~ZmqTransport() override;

  // kAlreadyExists: the port is in use. kInvalidArgument: not an endpoint, or not loopback while neither keys nor
  // `insecure` are given.
  Expected<std::string> Bind(const std::string& endpoint) override;
  Status Connect(Peer peer, const std::string& endpoint) override;
  void Send(Peer to, const Message& message) override;
  void Send(std::span<const Outgoing> outgoing) override;
  std::size_t Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) override;
  void Wake() override;
  void SetBusyPoll(std::int64_t us) override;
  TransportCounters counters() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::net
