// Hands messages to processes as a transport and a loop would: payloads that are lent, several messages in one turn,
// and heartbeats beside a shard that still reads its log.
#pragma once

#include <functional>

#include "core/message.h"
#include "sim/fleet/context.h"
#include "sim/fleet/fleet_checks.h"
#include "sim/fleet/outages.h"

namespace tarn::sim {

class Delivery {
 public:
  // All outlive it.
  Delivery(FleetContext& context, FleetChecks* checks, Outages* outages)
      : context_(context), checks_(checks), outages_(outages) {}

  // A message has arrived at a process.
  void Deliver(ProcessId to, Peer from, Message message);

 private:
  void Hear(Process& process, Peer from, const Message& message, Outbox* out);
  void SendLoading(ProcessId id, const Message& heartbeat, TimeUs until);
  // shard: the checker of the shard that receives the message; null: a worker does.
  void OverMemory(const Message& message, ShardChecker* shard, const std::function<void(Message)>& hand_over);
  void SettleSoon(ProcessId id, Process& process, Outbox* out);

  FleetContext& context_;
  FleetChecks* checks_;
  Outages* outages_;
};

}  // namespace tarn::sim
