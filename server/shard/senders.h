// Checks whether a shard serves the sender of a message, and rejects requests (rule E3). Not thread-safe.
#pragma once

#include "core/error.h"
#include "core/message.h"
#include "server/clock/cohort.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_step.h"

namespace tarn::server {

class Senders {
 public:
  // All arguments outlive this object.
  Senders(const Cohort* cohort, ShardStep* step, ShardCounters* counters)
      : cohort_(cohort), step_(step), counters_(counters) {}

  // The live member that sent the message. kWrongJob, kInvalidArgument (not from a worker), kStaleEpoch (older or
  // newer than the shard's), and the errors of Cohort::Check.
  Expected<const Cohort::Member*> Check(const Message& message) const;

  // Answers a pull, a push or a tick with the error; other messages get no answer. Counts the rejection.
  void Refuse(Peer to, const Body& body, const Error& error);

 private:
  const Cohort* cohort_;
  ShardStep* step_;
  ShardCounters* counters_;
};

}  // namespace tarn::server
