// How a loop exchanges messages with other nodes: it owns one Transport, on one thread, and calls Receive in a loop.
// Links may lose, repeat and reorder (across reconnects); the state machines repeat what must arrive.
//
//   transport->Connect(kSchedulerPeer, "ipc:///home/me/runs/mine/sockets/scheduler");
//   std::vector<Received> batch;
//   transport->Receive(&batch, 256, 10'000);
//   for (Received& r : batch) node.OnMessage(r.from, std::move(r.message), now, &out);
//   transport->Send(out);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/metrics/metric_table.h"

namespace tarn::net {

struct Received {
  Peer from;
  Message message;
};

// Cumulative since the transport was made, but for the last three.
struct TransportCounters {
  std::uint64_t sent_messages = 0;
  std::uint64_t sent_bytes = 0;  // payload and headers, without ZeroMQ's own framing
  std::uint64_t received_messages = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t refused_malformed = 0;    // bytes that are no message
  std::uint64_t refused_too_large = 0;    // over a limit: frames, bytes, lengths
  std::uint64_t refused_version = 0;      // another protocol version
  std::uint64_t refused_handshakes = 0;   // connections that do not speak ZeroMQ, or are not admitted
  std::uint64_t dropped_backlog = 0;      // messages to a peer that takes nothing, beyond the bound
  std::uint64_t dropped_unreachable = 0;  // messages to a peer that is gone or was never there
  std::uint64_t dropped_unencodable = 0;  // our own messages that Encode refused
  std::uint64_t backlog_bytes = 0;        // waiting now
  std::uint64_t accepted_peers = 0;       // known now
  std::uint64_t shm_peers = 0;            // with whom memory is shared now
};
inline constexpr MetricField<TransportCounters> kTransportMetrics[] = {
    {MetricOf(kOfScheduler | kOfShard, "sent_messages"), &TransportCounters::sent_messages},
    {MetricOf(kOfScheduler | kOfShard, "sent_bytes"), &TransportCounters::sent_bytes},
    {MetricOf(kOfScheduler | kOfShard, "received_messages"), &TransportCounters::received_messages},
    {MetricOf(kOfScheduler | kOfShard, "received_bytes"), &TransportCounters::received_bytes},
    {MetricOf(kOfScheduler | kOfShard, "refused_malformed"), &TransportCounters::refused_malformed},
    {MetricOf(kOfScheduler | kOfShard, "refused_too_large"), &TransportCounters::refused_too_large},
    {MetricOf(kOfScheduler | kOfShard, "refused_version"), &TransportCounters::refused_version},
    {MetricOf(kOfScheduler | kOfShard, "refused_handshakes"), &TransportCounters::refused_handshakes},
    {MetricOf(kOfScheduler | kOfShard, "dropped_backlog"), &TransportCounters::dropped_backlog},
    {MetricOf(kOfScheduler | kOfShard, "dropped_unreachable"), &TransportCounters::dropped_unreachable},
    {MetricOf(kOfScheduler | kOfShard, "dropped_unencodable"), &TransportCounters::dropped_unencodable},
    {MetricOf(kOfScheduler | kOfShard, "backlog_bytes"), &TransportCounters::backlog_bytes},
    {MetricOf(kOfScheduler | kOfShard, "accepted_peers"), &TransportCounters::accepted_peers},
    {MetricOf(kOfScheduler | kOfShard, "shm_peers"), &TransportCounters::shm_peers},
};
static_assert(BindsAll(kTransportMetrics));

// Not thread-safe: it is one thread's at a time. Wake alone may be called from any thread while the transport lives.
class Transport {
 public:
  virtual ~Transport() = default;

  // Accepts peers at `endpoint` ("tcp://127.0.0.1:7701", "ipc:///path"; port * or 0: the system chooses); each one that
  // sends gets a Peer from kFirstAcceptedPeer on. Returns the real endpoint, with the port.
  virtual Expected<std::string> Bind(const std::string& endpoint) = 0;

  // Makes `peer` (below kFirstAcceptedPeer) reachable at `endpoint`, now or whenever somebody is there. The same
  // again does nothing; another endpoint replaces the first, and what still waited for that is dropped.
  virtual Status Connect(Peer peer, const std::string& endpoint) = 0;

  // Never blocks. What the network does not take now (as before a connection stands) waits, in order for each lane, up
  // to limits::kBacklogBytesMax a peer, and leaves during Receive; beyond, and to peers that are gone, messages are
  // dropped and counted.
  virtual void Send(Peer to, const Message& message) = 0;
  // The same for many, in order for each lane to a peer; small ones to one lane travel together.
  virtual void Send(std::span<const Outgoing> outgoing) {
    for (const Outgoing& o : outgoing) Send(o.to, o.message);
  }

  // A message in another protocol version from a peer that we connected to comes as Shutdown{kWrongJob}, naming both
  // versions, with the scheduler as its sender (rule N1); from others it is counted and answered.
  //
  // (Payloads may be good only until the next Receive, where a transport says so.)
  //
  // Appends about `max` messages to `out` (what came together is given together), and returns how many. Waits up to
  // `timeout_us` (below 0: for ever; rounded up to whole milliseconds) for the first; comes back empty after Wake, a
  // signal or the timeout.
  virtual std::size_t Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) = 0;

  // Makes the Receive in progress, or else the next one, return at once.
  virtual void Wake() = 0;

  // For how long Receive looks for messages before it sleeps: an answer comes sooner, and a core is busy meanwhile.
  virtual void SetBusyPoll(std::int64_t /*us*/) {}

  // How many lanes lead to each peer that is connected to from now on, other than the scheduler; at least 1. The first
  // carries all messages but `Pull`, which take the others in turns (docs/protocol.md, "Lanes"): pulls may overtake
  // other messages and each other.
  virtual void SetLanes(std::uint32_t /*lanes*/) {}

  virtual TransportCounters counters() const = 0;
};

}  // namespace tarn::net
