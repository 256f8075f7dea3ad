// The peers of a transport on this host: pending requests for shared memory, and established channels.
// net/shm_handshake.h defines the handshake, net/shm_channel.h the messages.
//
// The transport exchanges the handshake's messages over ZeroMQ. It sends with Send to peers for which Sends is true,
// and receives with Drain. If a channel ends, ZeroMQ carries the messages again, and a client repeats its request.
#pragma once

#include <poll.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/message.h"
#include "core/types.h"
#include "net/backlog.h"
#include "net/shm_channel.h"
#include "net/shm_handshake.h"

namespace tarn::net {

struct ShmOptions {
  std::size_t ring_bytes = 0;         // of each direction (ShmSegment::Create)
  std::size_t waiting_bytes_max = 0;  // waiting messages per peer
  int wake_file = -1;                 // of the loop (net/wake_file.h); outlives the peers
  bool lends = false;                 // large messages (ShmChannel::SetLending)
};

// One thread.
class ShmPeers {
 public:
  // Sends a handshake message by ZeroMQ, after everything sent before. False: not possible now.
  using SendHandshake = std::function<bool(Peer, const ShmHandshake&)>;
  ShmPeers(const ShmOptions& options, SendHandshake send)
      : options_(options), send_(std::move(send)), boot_id_(BootId()) {}

  // From now on incoming peers may request shared memory.
  void Open();
  // Requests shared memory from `peer`, to which this process has connected; Step repeats the request until both share
  // memory. Call Forget first. Does nothing if the system provides no boot id.
  void Request(Peer peer);
  // Drops the peer and its channel. Returns the number of messages that waited in the channel and are lost.
  std::size_t Forget(Peer peer);
  void OnHandshake(Peer from, const ShmHandshake& handshake, TimeUs now);
  // Whether a peer that shares memory has not been identified yet.
  bool has_unidentified() const { return has_unidentified_; }
  // Records the role and rank of a peer, for log lines. Only the first call for a peer counts.
  void Identify(Peer peer, const Sender& sender);

  // Whether messages to this peer must be sent through Send.
  bool Sends(Peer to) const {
    const auto found = peers_.find(to);
    return found != peers_.end() && found->second.writes;
  }
  // Requires Sends(to). `what`: Frames, or one FrameView, which is copied. False: dropped, because too much waits.
  template <typename What>
  bool Send(Peer to, What&& what) {
    ShmChannel& channel = *peers_.at(to).channel;
    const bool taken = channel.Send(std::forward<What>(what), options_.waiting_bytes_max);
    waiting_ |= channel.waiting_bytes() != 0;
    return taken;
  }

  // Releases the payloads that Drain has lent.
  void GiveBack() {
    if (!options_.lends) return;
    for (auto& [peer, state] : peers_)
      if (state.channel) state.channel->GiveBack();
  }

  // Handles the results of TakeFiles and due timers, and writes waiting messages. Returns how many messages were lost
  // with channels that ended.
  std::size_t Step(TimeUs now) { return now >= next_time_ || waiting_ ? StepAll(now) : 0; }
  // Time of the next timer.
  TimeUs NextTime() const { return next_time_; }

  // AddFiles appends the files to poll, beside the wake file. TakeFiles takes the results for the same files in the
  // same order.
  void AddFiles(std::vector<pollfd>* files) const;
  void TakeFiles(const pollfd* files);
  // As of ShmChannel, for all channels together. False from Sleep: messages may have arrived.
  bool Sleep();
  void Awake();
  bool Changed() const;

  // Calls accept(peer, frames) for up to *budget messages, round-robin from where the last call ended. Returns whether
  // there may be more: the budget was used up, or messages after a lent one wait for GiveBack.
  template <typename Accept>
  bool Drain(std::size_t* budget, Accept accept) {
    for (bool more = true; more;) {
      more = false;
      auto it = peers_.upper_bound(last_drained_);
      for (std::size_t left = peers_.size(); left > 0; --left, ++it) {
        if (it == peers_.end()) it = peers_.begin();
        if (!it->second.reads) continue;
        if (*budget == 0) return true;
        more |= DrainOne(it->first, &*it->second.channel, budget, accept);
        last_drained_ = it->first;
      }
    }
    return options_.lends && HasLent();
  }

  std::size_t waiting_bytes() const;  // in channels whose other side has not ended
  std::size_t channels() const;

 private:
  static constexpr std::size_t kTurn = 32;  // messages received from one peer before the next has its turn

  struct State {
    bool requests = false;  // shared memory is requested, at next_request at the earliest
    TimeUs next_request = 0;
    std::optional<ShmConnector> connector;
    bool readable = false;  // the socket of the connector or the channel
    std::optional<ShmChannel> channel;
    bool must_switch = false;            // Switch must be sent
    bool reads = false, writes = false;  // messages are received from the channel; are sent to it
    bool peer_switched = false;          // Switch has arrived
    TimeUs switch_deadline = 0;          // if Switch has not arrived by then, it is lost and the channel ends
    TimeUs pause = 0;                    // until the next request; doubles
    std::optional<Sender> sender;
  };

  // Returns whether the channel may have more.
  template <typename Accept>
  static bool DrainOne(Peer peer, ShmChannel* channel, std::size_t* budget, Accept accept) {
    ShmFrames frames;
    for (std::size_t i = 0; i < kTurn && *budget > 0; ++i, --*budget) {
      if (!channel->Receive(&frames)) return false;
      accept(peer, &frames);
    }
    return true;
  }

  static std::string NameOf(Peer peer, const State& state);
  static bool IsUnidentified(Peer peer, const State& state);
  void UpdateUnidentified();
  static void LogChannel(Peer peer, const State& state);
  bool HasLent() const;
  bool WatchEnd(Peer peer, const ShmChannel& channel);
  void TakeEnds();
  std::size_t StepAll(TimeUs now);
  void OnRequest(Peer from, const std::string& boot_id);
  void OnOffer(Peer from, const ShmHandshake& handshake);
  void StepOne(Peer peer, State* state, TimeUs now);
  void PollConnector(Peer peer, State* state, TimeUs now);
  bool AddChannel(Peer peer, State* state, ShmChannel channel, TimeUs now);
  std::size_t End(State* state);
  void RequestLater(Peer peer, State* state, TimeUs now);
  void Schedule(TimeUs time) { next_time_ = std::min(next_time_, time); }

  ShmOptions options_;
  SendHandshake send_;
  std::string boot_id_;
  Descriptor ends_;  // an epoll of the channels' sockets: readable when another side has ended; opened when needed
  std::optional<ShmListener> listener_;
  bool arrivals_ = false;
  bool has_unidentified_ = false;
  TimeUs listen_at_ = 0;
  std::map<Peer, State> peers_;
  TimeUs next_time_ = 0;
  bool waiting_ = false;  // a channel may have messages that wait for room
  Peer last_drained_;
};

}  // namespace tarn::net
