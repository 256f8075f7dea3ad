// A transport that delays the messages of another one, for experiments ([delays] of the job): each message waits for
// the link of its sender, then for a latency, then for the link of its receiver. A message may be up to a millisecond
// late, because the delayed transport waits for whole milliseconds. The laboratory's simulated network
// (sim/trial/links.h) computes delays in the same way.
//
//   net::ZmqTransport sockets(...);
//   net::SlowTransport slow(&sockets, net::SlowNetwork(job, Role::kWorker, rank));
//
// A node delays what it sends by its own link and the latency, and what it receives by its own link. So all servers and
// workers of a fleet need a SlowTransport. The scheduler has none: its messages wait only for their receivers' links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/message.h"
#include "core/types.h"
#include "net/transport.h"

namespace tarn::net {

// The approximate bytes of a message on a network: its payload, and an estimate for its header.
std::size_t BytesOf(const Message& message);

struct SlowTransportOptions {
  std::function<TimeUs()> latency;  // of the next message, one way
  double us_per_byte = 0;           // of the node's link, in each direction; 0: no limit
};

// Whether a real run delays its messages: the job limits the bandwidth, or sets another latency than the default, which
// is about that of a real network.
inline bool HasSlowNetwork(const DelaysSection& delays) {
  return delays.gbit_per_second > 0 || delays.latency != DelaysSection().latency;
}
// Microseconds per byte of a link with the job's bandwidth; 0: no limit.
double UsPerByte(const DelaysSection& delays);
// The delays of a node. Each node draws its own sequence of latencies.
SlowTransportOptions SlowNetwork(const Job& job, Role role, std::uint64_t rank);

class SlowTransport final : public Transport {
 public:
  // `inner` outlives this object. The destructor sends the messages that still wait.
  SlowTransport(Transport* inner, SlowTransportOptions options) : inner_(inner), options_(std::move(options)) {}
  ~SlowTransport() override;
  SlowTransport(const SlowTransport&) = delete;
  SlowTransport& operator=(const SlowTransport&) = delete;

  Expected<std::string> Bind(const std::string& endpoint) override { return inner_->Bind(endpoint); }
  Status Connect(Peer peer, const std::string& endpoint) override { return inner_->Connect(peer, endpoint); }
  void Send(Peer to, const Message& message) override;
  using Transport::Send;
  std::size_t Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) override;
  void Wake() override { inner_->Wake(); }
  void SetBusyPoll(std::int64_t us) override { inner_->SetBusyPoll(us); }
  void SetLanes(std::uint32_t lanes) override { inner_->SetLanes(lanes); }
  TransportCounters counters() const override { return inner_->counters(); }

 private:
  // Returns the time at which a message that reaches a link at `at`, and occupies it for `us`, has passed it. *free_at
  // is the time from which the link is free, and is updated.
  static double Pass(double* free_at, double at, double us) { return *free_at = (at > *free_at ? at : *free_at) + us; }
  void SendDue(TimeUs now);
  void Deliver(TimeUs now, std::vector<Received>* out, std::size_t max);
  std::int64_t Wait(TimeUs now, std::int64_t timeout_us) const;

  Transport* inner_;
  const SlowTransportOptions options_;
  double out_free_at_ = 0, in_free_at_ = 0;
  std::multimap<TimeUs, Outgoing> waiting_;           // to be sent, by due time; for each peer in order
  std::map<Peer, TimeUs> last_sent_;                  // due time of the last message to each peer
  std::deque<std::pair<TimeUs, Received>> arriving_;  // received messages, by the time at which Receive returns them
  std::vector<Received> received_;
};

}  // namespace tarn::net
