// Delivers messages to processes like a transport and a loop: with lent payloads, several messages per turn, and
// heartbeats for a shard that is reading its log.
#pragma once

#include <functional>

#include "core/message.h"
#include "sim/fleet/context.h"
#include "sim/fleet/fleet_checks.h"
#include "sim/fleet/outages.h"

namespace tarn::sim {

class Delivery {
 public:
  // All arguments outlive this object.
  Delivery(FleetContext& context, FleetChecks* checks, Outages* outages)
      : context_(context), checks_(checks), outages_(outages) {}

  // Delivers a message to a process, unless the process has ended.
  void Deliver(ProcessId to, Peer from, Message message);

 private:
  void Handle(Process& process, Peer from, const Message& message, Outbox* out);
  void SendLoading(ProcessId id, const Message& heartbeat, TimeUs until);
  // `shard`: the checker of the receiving shard; null: the receiver is a worker.
  void DeliverLent(const Message& message, ShardChecker* shard, const std::function<void(Message)>& hand_over);
  void SettleSoon(ProcessId id, Process& process, Outbox* out);

  FleetContext& context_;
  FleetChecks* checks_;
  Outages* outages_;
};

}  // namespace tarn::sim
