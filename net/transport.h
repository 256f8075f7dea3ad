// The interface through which a loop exchanges messages with other nodes. A loop owns one Transport, on one thread, and
// calls Receive repeatedly. Links may lose, repeat and (across reconnects) reorder messages; the state machines repeat
// those that must arrive.
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

// Cumulative since construction, except the last three.
struct TransportCounters {
  std::uint64_t sent_messages = 0;
  std::uint64_t sent_bytes = 0;  // payload and headers, without ZeroMQ's own framing
  std::uint64_t received_messages = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t refused_malformed = 0;    // bytes that are not a message
  std::uint64_t refused_too_large = 0;    // over a limit: frames, bytes, lengths
  std::uint64_t refused_version = 0;      // another protocol version
  std::uint64_t refused_handshakes = 0;   // connections that do not speak ZeroMQ, or are not admitted
  std::uint64_t dropped_backlog = 0;      // messages to a peer whose backlog is full
  std::uint64_t dropped_unreachable = 0;  // messages to a peer that is not connected, or whose link has ended
  std::uint64_t dropped_unencodable = 0;  // this node's messages that Encode rejected
  std::uint64_t backlog_bytes = 0;        // currently waiting
  std::uint64_t accepted_peers = 0;       // currently known
  std::uint64_t shm_peers = 0;            // currently sharing memory
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

// Not thread-safe, except Wake, which any thread may call during the transport's lifetime.
class Transport {
 public:
  virtual ~Transport() = default;

  // Accepts peers at `endpoint` ("tcp://127.0.0.1:7701", "ipc:///path"; port * or 0: the system chooses). Each peer
  // that sends a message gets a Peer from kFirstAcceptedPeer on. Returns the endpoint with the chosen port.
  virtual Expected<std::string> Bind(const std::string& endpoint) = 0;

  // Connects `peer` (below kFirstAcceptedPeer) to `endpoint`, now or when a process listens there. Idempotent; another
  // endpoint replaces the first, and messages that waited for it are dropped.
  virtual Status Connect(Peer peer, const std::string& endpoint) = 0;

  // Never blocks. Messages that the network does not accept now (such as before a connection is established) wait, in
  // order for each lane, up to limits::kBacklogBytesMax per peer, and are sent during Receive. Messages beyond this
  // bound, or to peers that have disconnected, are dropped and counted.
  virtual void Send(Peer to, const Message& message) = 0;
  // The same for several messages, in order for each lane; small ones on one lane are sent together.
  virtual void Send(std::span<const Outgoing> outgoing) {
    for (const Outgoing& o : outgoing) Send(o.to, o.message);
  }

  // Appends about `max` messages to `out` (messages that arrived together are returned together) and returns their
  // number. Waits up to `timeout_us` (below 0: without limit; rounded up to whole milliseconds) for the first one.
  // Returns 0 if Wake, a signal or the timeout ends the wait before a message arrives.
  //
  // Payloads may be valid only until the next Receive, if the implementation says so.
  //
  // A message of another protocol version from a peer to which this node connected is delivered as Shutdown{kWrongJob},
  // which names both versions, with the scheduler as its sender (rule N1). From other peers it is counted and answered.
  virtual std::size_t Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) = 0;

  // Makes the Receive in progress, or else the next one, return at once.
  virtual void Wake() = 0;

  // How long Receive polls before it sleeps. Polling shortens round trips and keeps a core busy.
  virtual void SetBusyPoll(std::int64_t /*us*/) {}

  // The number of lanes, at least 1, for each later Connect except to the scheduler. The first lane carries all
  // messages but `Pull`, which use the others in turns (docs/protocol.md, "Lanes"), so pulls may overtake other
  // messages and each other.
  virtual void SetLanes(std::uint32_t /*lanes*/) {}

  virtual TransportCounters counters() const = 0;
};

}  // namespace tarn::net
