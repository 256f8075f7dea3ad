#include "server/shard/scheduler_link.h"

#include "core/limits.h"

namespace tarn::server {

void SchedulerLink::Start() {
  OnHeard();
  SendJoin();
}

void SchedulerLink::SendJoin() {
  step_->Send(kSchedulerPeer, Join{.role = Role::kShard,
                                   .rank = step_->shard().value,
                                   .nonce = options_.nonce,
                                   .protocol_version = limits::kProtocolVersion,
                                   .endpoint = options_.endpoint,
                                   .shards_per_server = options_.shards_per_server,
                                   .http = options_.http});
  OnBeat();
}

bool SchedulerLink::IsFromScheduler(Peer from, const Message& message) const {
  return from == kSchedulerPeer && message.sender.role == Role::kScheduler && (!joined_ || message.job == step_->job());
}

void SchedulerLink::SetPeriods(TimeUs heartbeat_us, TimeUs lease_us) {
  heartbeat_us_ = heartbeat_us;
  lease_us_ = lease_us;
}

}  // namespace tarn::server
