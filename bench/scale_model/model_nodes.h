// The nodes of a fleet in simulated time: machines with threads and links, each with the state machine of a shard or of
// a worker. Plain values, driven by the model.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "bench/scale_model/fleet_options.h"
#include "bench/scale_model/machine.h"
#include "bench/scale_model/message_costs.h"
#include "bench/scale_model/meter.h"
#include "bench/scale_model/shard_work.h"
#include "bench/scale_model/trainer_model.h"
#include "bench/scale_model/workload.h"
#include "core/job/job.h"
#include "server/shard/shard.h"
#include "sim/disks/memory_checkpoint_store.h"

namespace tarn::scale {

struct Arrived {
  Peer from;
  Message message;
  Extent extent;
  double frame_ns = 0;  // in the first message of a frame: time of the receiver's main thread for the frame
};

// The threads and the link of a machine.
struct Machine {
  std::unique_ptr<Host> own_host;
  std::unique_ptr<Thread> main, io, reader;
  Wire out_wire, in_wire;
  double out_wire_ns = 0, in_wire_ns = 0;  // busy time of the link
};

struct ModelNode {
  std::uint32_t index = 0;
  bool is_worker = false;
  Machine machine;
  // Of a shard.
  std::unique_ptr<server::MemoryCheckpointStore> store;
  std::unique_ptr<ShardWork> work;
  std::unique_ptr<server::Shard> shard;
  // Of a worker.
  std::unique_ptr<TrainerModel> trainer;
  // wants_turn: a turn is due even without messages. may_compute: false after a batch until a turn has handled
  // messages.
  bool reading = false, wants_turn = false, may_compute = true, was_ready = false;
  double compute_ns = 0;
  // The loop around the state machine.
  std::deque<Arrived> inbox;
  std::size_t turn_left = 0;  // messages of the current turn that are not handled yet
  double turn_copies = 0;     // messages of shards received in this turn so far
  bool busy = false;
  std::vector<std::pair<Outgoing, Extent>> unsent;
  double unsent_bytes = 0;
};

struct Workloads {
  Workload *usual, *slow;  // slow: of slow workers
};

class ModelNodes {
 public:
  // All but the job outlive this object. `job`: that of the fleet (ModelJob).
  ModelNodes(const Job& job, const FleetOptions* options, const Costs* costs, const Workloads& workloads, Meter* meter,
             sim::EventQueue* events);

  // Shards, then workers.
  const std::vector<std::unique_ptr<ModelNode>>& all() const { return nodes_; }
  std::uint32_t shards() const { return shards_; }
  ModelNode& shard(ShardId id) const { return *nodes_[id.value]; }
  // At: the node with this peer number at the scheduler and at shards. PeerOf: the inverse.
  ModelNode& At(Peer peer) const { return *nodes_[peer.value - kFirstAcceptedPeer]; }
  Peer PeerOf(const ModelNode& node) const {
    return Peer(kFirstAcceptedPeer + (node.is_worker ? shards_ : 0) + node.index);
  }
  // The shard that sends the message or, if a worker sends it, receives it; 0 for a worker's message to the scheduler.
  static std::uint32_t ShardOf(const ModelNode& from, Peer to);
  // The factor by which the node's threads are slower now; 1: not slow.
  double Slow(const ModelNode& node) const;

 private:
  void MakeThreads(ModelNode* node);
  void MakeShard(ModelNode* node, const Costs* costs, const Workload* workload, Meter* meter);

  const FleetOptions* options_;
  sim::EventQueue* events_;
  std::uint32_t shards_;
  Host shared_host_;
  server::MemoryCheckpointFiles files_;
  std::vector<std::unique_ptr<ModelNode>> nodes_;
};

// The job of the fleet that the model simulates.
Job ModelJob(Job given, const FleetOptions& options, const Workload& workload);

}  // namespace tarn::scale
