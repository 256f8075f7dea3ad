// A Membership whose fleet is complete. The test sends the messages of its nodes.
#pragma once

#include <cstdint>

#include "scheduler/membership/membership.h"
#include "tests/unit/scheduler/membership/nodes_fixture.h"

namespace tarn::scheduler {

// Incarnations: shards 1, 2, ..., then workers by rank. Lease and heartbeat period: 1 s.
struct FormedFleet : Letters {
  explicit FormedFleet(std::uint32_t workers, std::uint32_t shards = 1, Membership::Options options = {})
      : membership(Prepare(workers, shards, std::move(options))) {
    for (std::uint32_t rank = 0; rank < shards; ++rank)
      membership.OnJoin(Peer(1 + rank), ShardJoin(rank, 1 + rank), 0, mail);
    for (std::uint32_t rank = 0; rank < workers; ++rank) JoinAs(rank);
    membership.Form(0);
    Confirm();
  }
  static Membership::Options Prepare(std::uint32_t workers, std::uint32_t shards, Membership::Options options) {
    options.workers = workers;
    options.shards = shards;
    options.lease_us = options.heartbeat_us = 1'000'000;
    return options;
  }
  // A new process of the rank; returns its nonce.
  std::uint64_t JoinAs(std::uint32_t rank) {
    JoinWith(rank, ++nonce);
    return nonce;
  }
  void JoinWith(std::uint32_t rank, std::uint64_t with) {
    Join join{.role = Role::kWorker,
              .rank = rank,
              .nonce = with,
              .protocol_version = limits::kProtocolVersion,
              .endpoint = {}};
    Clear();
    membership.OnJoin(Peer(with), join, 0, mail);
  }
  // All shards report the newest view and the minimum clock `clock`, and no tick of fenced workers.
  void Confirm(Clock clock = Clock(0)) {
    Heartbeat beat = ShardBeat(membership.view().version, clock);
    for (const WorkerEntry& entry : membership.view().workers)
      if (entry.state == WorkerState::kFencing) beat.fenced.push_back({entry.incarnation, Clock(0), {}, Clock(0)});
    for (const ShardNode& shard : membership.shards().all()) membership.OnHeartbeat(shard.shard, beat, 0, mail);
  }
  // The worker confirms the open proposal at `clock`, with all its ticks acknowledged.
  void Report(Incarnation worker, Clock clock, const DataPosition& position = {}) {
    Heartbeat beat;
    beat.view = membership.view().version;
    beat.proposal = membership.view().proposal.id;
    beat.clock = beat.acked_clock = clock;
    beat.position = position;
    membership.OnHeartbeat(worker, beat, 0, mail);
  }
  Incarnation Newest() const { return membership.workers().all().rbegin()->first; }

  Membership membership;
  std::uint64_t nonce = 100;
};

}  // namespace tarn::scheduler
