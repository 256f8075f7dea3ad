// A network that delays, drops, repeats and reorders messages, and has partitions. All randomness comes from one seed.
//
// A node is a place in the fleet (scheduler, shard i, worker rank r); a process is one start of a node. Processes
// communicate over connections: the connecting side names the other by a fixed Peer, the accepting side by a Peer that
// changes with every reconnect, as with ZeroMQ. With several lanes the connecting side's pulls use separate
// connections, each with its own order and Peer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "core/message.h"
#include "sim/event_queue.h"
#include "sim/scenario.h"

namespace tarn::sim {

using NodeId = std::uint32_t;
using ProcessId = std::uint32_t;

struct NetworkCounters {
  std::uint64_t sent = 0, delivered = 0, dropped = 0, duplicated = 0, reordered = 0, spiked = 0, cut = 0;
  std::uint64_t faults() const { return dropped + duplicated + reordered + spiked + cut; }
};

class Network {
 public:
  // deliver(process, from, message): called at the time of arrival.
  using Deliver = std::function<void(ProcessId, Peer, Message)>;

  Network(EventQueue* events, const Faults& faults, std::uint64_t seed, bool through_frames, Deliver deliver);

  void AddProcess(ProcessId process, NodeId node);
  // Messages of the process may still arrive; it receives none.
  void RemoveProcess(ProcessId process);
  // Connects `client` to `server`, which the client calls `peer`.
  void Connect(ProcessId client, Peer peer, ProcessId server, std::uint32_t lanes = 1);
  bool Connected(ProcessId client, Peer peer) const;
  void Send(ProcessId from, Peer to, const Message& message);
  // The process that `server` calls `peer`; nullopt: it is no longer connected.
  std::optional<ProcessId> ClientOf(ProcessId server, Peer peer) const;

  // Breaks a random connection: the accepting side sees a new Peer, and some messages in flight are lost.
  void ReconnectOne();
  // Drops messages from a to b (with `both` also from b to a) until `until`.
  void Cut(NodeId a, NodeId b, bool both, TimeUs until);
  // Ends all partitions. From now on Send drops, repeats, reorders and delays no message by a fault.
  void Heal();

  const NetworkCounters& counters() const { return counters_; }

 private:
  struct Connection {
    ProcessId client = 0, server = 0;
    NodeId client_node = 0;
    Peer server_peer;    // the client's name of the server
    Peer accepted_peer;  // the server's current name of the client
    TimeUs last_arrival[2] = {0, 0};
    std::vector<std::uint64_t> pull_lanes;  // further connections, for the client's pulls in turns
    std::size_t turn = 0;
  };

  std::uint64_t Open(ProcessId client, Peer peer, ProcessId server);

  void Transmit(std::uint64_t connection, bool to_server, const Message& message);
  void Arrive(std::uint64_t connection, bool to_server, Peer accepted_peer, const Message& message);

  EventQueue* events_;
  Faults faults_;
  SplitMix rng_;
  bool through_frames_;
  bool healed_ = false;
  Deliver deliver_;
  std::map<ProcessId, NodeId> node_of_;
  std::map<std::uint64_t, Connection> connections_;
  std::map<std::pair<ProcessId, Peer>, std::uint64_t> by_client_, by_server_;
  std::map<std::pair<NodeId, NodeId>, TimeUs> cut_until_;
  std::uint64_t next_connection_ = 1;
  std::uint64_t next_peer_ = kFirstAcceptedPeer;
  NetworkCounters counters_;
};

}  // namespace tarn::sim
