// The scheduler's view of the fleet: the route map and the membership. The scheduler alone makes views; it sends
// the whole of the newest to every node until each has confirmed its version. Everything in it is state, not an
// event, so a lost or repeated view does no harm. docs/protocol.md tells how views change.
#pragma once

#include <string>
#include <vector>

#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn {

// Who holds which partition. Chains have one member until replication comes; the head is the first.
struct RouteMap {
  Epoch epoch;  // grows with every change of placement
  std::uint32_t partition_bits = 0;
  std::vector<ShardId> owners;         // 2^partition_bits heads, by partition
  std::vector<std::string> endpoints;  // by shard: "tcp://127.0.0.1:7701"

  ShardId OwnerOf(PartitionId partition) const { return owners[partition.value]; }
};

// Even placement: partition p of P goes to shard p * shards / P.
std::vector<ShardId> EvenOwners(std::uint32_t partition_bits, std::uint32_t shards);

enum class WorkerState : std::uint8_t {
  kLive,     // in the cohort of every clock >= join
  kFencing,  // declared dead: shards refuse it and report the highest tick that they hold
  kEnded,    // verdict: in the cohort of clocks join <= t < end; what it pushed of clocks >= end is void
};

struct WorkerEntry {
  WorkerRank rank;
  Incarnation incarnation;
  WorkerState state = WorkerState::kLive;
  Clock join;
  Clock end;  // kEnded only

  // Whether clock `t` waits for this worker.
  bool InCohort(Clock t) const { return t >= join && (state != WorkerState::kEnded || t < end); }
};

// While a proposal is open, each live worker reports (proposal, clock) once and then ticks at most to
// clock + kProposalSlack; the scheduler derives from the reports a clock that nobody has passed.
// With `drain` it stops them instead: each live worker finishes the clock of which it has sent a push, if there is one,
// sends nothing of a later one, and says so (Heartbeat.drained) once every shard has acknowledged all that it sent.
struct Proposal {
  std::uint64_t id = 0;  // 0: none yet; grows
  bool open = false;
  bool drain = false;
};
inline constexpr std::uint64_t kProposalSlack = 8;

// An order to cut a checkpoint; it stands in the view until every shard has written its part.
struct CheckpointOrder {
  CheckpointId id;        // 0: none
  bool at_clock = false;  // true: cut when all pushes of clocks < clock are in and none of a later one
  Clock clock;            // false: cut each partition where it stands, at once
  std::string directory;  // where every shard writes its files; empty: only hashes are asked for (rule K6)
  // 0: the files hold all rows. Else a whole checkpoint with this number, in base_directory: they hold what changed
  // since, and each shard links its share of the base's files into `directory` (rule K7).
  CheckpointId base;
  std::string base_directory;
  bool whole_hash = false;  // the parts say the hash of all rows, whatever the files hold
  bool blobs = false;       // workers have state of their own, which belongs into the directory too (rule K9)
};

struct View {
  ViewVersion version;
  RouteMap routes;
  std::vector<WorkerEntry> workers;  // by rank, then incarnation
  std::vector<TableSpec> tables;     // in order of id
  Proposal proposal;
  CheckpointOrder checkpoint;
  CheckpointId whole;  // the newest whole checkpoint, as far as logs may rely on it; 0: none
};

}  // namespace tarn
