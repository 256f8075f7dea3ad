#include "sim/network.h"

#include <algorithm>

#include "net/frame.h"

namespace tarn::sim {

Network::Network(EventQueue* events, const Faults& faults, std::uint64_t seed, bool through_frames, Deliver deliver)
    : events_(events),
      faults_(faults),
      rng_(Mix64(seed ^ 0x6e6574)),
      through_frames_(through_frames),
      deliver_(std::move(deliver)) {}

void Network::AddProcess(ProcessId process, NodeId node) { node_of_[process] = node; }

void Network::RemoveProcess(ProcessId process) {
  node_of_.erase(process);
  for (auto it = connections_.begin(); it != connections_.end();) {
    const Connection& c = it->second;
    if (c.client != process && c.server != process) {
      ++it;
      continue;
    }
    by_client_.erase({c.client, c.server_peer});
    by_server_.erase({c.server, c.accepted_peer});
    it = c.server == process ? connections_.erase(it) : std::next(it);
  }
}

void Network::Connect(ProcessId client, Peer peer, ProcessId server, std::uint32_t lanes) {
  const std::uint64_t first = Open(client, peer, server);
  by_client_[{client, peer}] = first;
  for (; lanes > 1; --lanes) connections_[first].pull_lanes.push_back(Open(client, peer, server));
}

std::uint64_t Network::Open(ProcessId client, Peer peer, ProcessId server) {
  const std::uint64_t id = next_connection_++;
  Connection& c = connections_[id];
  c.client = client;
  c.server = server;
  c.client_node = node_of_.at(client);
  c.server_peer = peer;
  c.accepted_peer = Peer(next_peer_++);
  by_server_[{server, c.accepted_peer}] = id;
  return id;
}

bool Network::Connected(ProcessId client, Peer peer) const { return by_client_.contains({client, peer}); }

std::optional<ProcessId> Network::ClientOf(ProcessId server, Peer peer) const {
  const auto found = by_server_.find({server, peer});
  return found == by_server_.end() ? std::nullopt : std::optional(connections_.at(found->second).client);
}

void Network::Send(ProcessId from, Peer to, const Message& message) {
  ++counters_.sent;
  if (auto it = by_client_.find({from, to}); it != by_client_.end()) {
    Connection& c = connections_.at(it->second);
    const bool on_pull_lane = !c.pull_lanes.empty() && std::holds_alternative<Pull>(message.body);
    return Transmit(on_pull_lane ? c.pull_lanes[c.turn++ % c.pull_lanes.size()] : it->second, true, message);
  }
  if (auto it = by_server_.find({from, to}); it != by_server_.end()) return Transmit(it->second, false, message);
  // The peer has disconnected: the message is lost, as when a ROUTER socket returns EHOSTUNREACH.
}

void Network::Transmit(std::uint64_t id, bool to_server, const Message& message) {
  Connection& c = connections_.at(id);
  TimeUs delay = faults_.delay_min_us + TimeUs(rng_.Below(std::uint64_t(faults_.delay_max_us)));
  bool in_order = true;
  int copies = 1;
  if (!healed_) {
    if (rng_.Chance(faults_.drop)) {
      ++counters_.dropped;
      return;
    }
    if (rng_.Chance(faults_.duplicate)) {
      ++counters_.duplicated;
      copies = 2;
    }
    if (rng_.Chance(faults_.reorder)) {
      ++counters_.reordered;
      in_order = false;
      delay *= 1 + TimeUs(rng_.Below(20));
    }
    if (rng_.Chance(faults_.spike)) {
      ++counters_.spiked;
      delay += TimeUs(rng_.Below(std::uint64_t(faults_.spike_us)));
    }
  }
  for (int i = 0; i < copies; ++i) {
    TimeUs at = events_->now() + delay;
    if (in_order && i == 0) at = c.last_arrival[to_server] = std::max(at, c.last_arrival[to_server]);
    if (i > 0) at += TimeUs(rng_.Below(50'000));
    events_->At(at, [this, id, to_server, peer = c.accepted_peer, message] { Arrive(id, to_server, peer, message); });
  }
}

void Network::Arrive(std::uint64_t id, bool to_server, Peer accepted_peer, const Message& message) {
  auto it = connections_.find(id);
  if (it == connections_.end()) return;
  const Connection& c = it->second;
  if (!node_of_.contains(to_server ? c.server : c.client) || !node_of_.contains(c.server)) return;
  const NodeId server_node = node_of_.at(c.server);
  const NodeId from = to_server ? c.client_node : server_node;
  const NodeId to = to_server ? server_node : c.client_node;
  if (auto cut = cut_until_.find({from, to}); cut != cut_until_.end() && events_->now() < cut->second) {
    ++counters_.cut;
    return;
  }
  if (accepted_peer != c.accepted_peer && rng_.Chance(0.5)) {  // it was sent before a reconnect
    ++counters_.dropped;
    return;
  }
  ++counters_.delivered;
  Message copy = message;
  if (through_frames_) {
    auto frames = net::Encode(message);
    TARN_CHECK(frames.has_value(), "a state machine made a message that cannot be encoded");
    std::vector<net::FrameView> views;
    for (const Buffer& frame : *frames) views.push_back({frame.data(), frame.size()});
    auto decoded = net::Decode(views);
    TARN_CHECK(decoded.has_value(), "a state machine made a message that does not decode");
    copy = std::move(*decoded);
  }
  deliver_(to_server ? c.server : c.client, to_server ? accepted_peer : c.server_peer, std::move(copy));
}

void Network::ReconnectOne() {
  if (by_client_.empty()) return;
  auto open = by_client_.begin();
  std::advance(open, rng_.Below(by_client_.size()));
  const std::vector<std::uint64_t>& others = connections_.at(open->second).pull_lanes;
  const std::uint64_t lane = others.empty() ? 0 : rng_.Below(others.size() + 1);
  const auto it = connections_.find(lane == 0 ? open->second : others[lane - 1]);
  Connection& c = it->second;
  by_server_.erase({c.server, c.accepted_peer});
  c.accepted_peer = Peer(next_peer_++);
  c.last_arrival[0] = c.last_arrival[1] = 0;
  by_server_[{c.server, c.accepted_peer}] = it->first;
  ++counters_.cut;
}

void Network::Cut(NodeId a, NodeId b, bool both, TimeUs until) {
  if (healed_) return;
  cut_until_[{a, b}] = until;
  if (both) cut_until_[{b, a}] = until;
}

void Network::Heal() {
  healed_ = true;
  cut_until_.clear();
}

}  // namespace tarn::sim
