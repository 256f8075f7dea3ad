// The peers of a transport on this host: pending requests for shared memory, and the established lanes (net/shm_door.h
// defines the negotiation, net/shm_lane.h the messages).
//
// The transport exchanges the negotiation's words over ZeroMQ. It sends with Send to peers for which Sends is true, and
// receives with Drain. If a lane ends, ZeroMQ carries the messages again, and a client repeats its request.
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
#include "net/shm_door.h"
#include "net/shm_lane.h"

namespace tarn::net {

struct ShmOptions {
  std::size_t ring_bytes = 0;         // of each direction (ShmSegment::Create)
  std::size_t waiting_bytes_max = 0;  // waiting messages per peer
  bool lends = false;                 // large messages (ShmLane::SetLending)
};

// One thread.
class ShmPeers {
 public:
  // Sends a word by ZeroMQ, after everything sent before. False: not possible now.
  using Say = std::function<bool(Peer, const ShmWord&)>;
  ShmPeers(const ShmOptions& options, Say say) : options_(options), say_(std::move(say)), boot_id_(BootId()) {}

  // From now on incoming peers may request shared memory.
  void Open();
  // This process connected to `peer`: requests shared memory from it, repeatedly until it is established.
  void Ask(Peer peer);
  // Returns how many messages were lost.
  std::size_t Forget(Peer peer);
  void OnWord(Peer from, const ShmWord& word, TimeUs now);
  // Whether memory is shared with a peer that is not identified yet, and its name for the log.
  bool strangers() const { return strangers_; }
  void Meet(Peer peer, const Sender& sender);

  bool Sends(Peer to) const {
    const auto found = peers_.find(to);
    return found != peers_.end() && found->second.writes;
  }
  // Requires Sends(peer). Frames, or one FrameView, which is copied. False: dropped.
  template <typename What>
  bool Send(Peer to, What&& what) {
    ShmLane& lane = *peers_.at(to).lane;
    const bool taken = lane.Send(std::forward<What>(what), options_.waiting_bytes_max);
    waiting_ |= lane.waiting_bytes() != 0;
    return taken;
  }

  // Releases the payloads that Drain has lent.
  void GiveBack() {
    if (!options_.lends) return;
    for (auto& [peer, state] : peers_)
      if (state.lane) state.lane->GiveBack();
  }

  // Runs due timers. Returns how many messages were lost with lanes that ended.
  std::size_t Tend(TimeUs now) { return now >= next_time_ || waiting_ ? TendAll(now) : 0; }
  // Time of the next timer.
  TimeUs NextTime() const { return next_time_; }

  // For a poll of the same files in the same order.
  void AddFiles(std::vector<pollfd>* files) const;
  void TakeFiles(const pollfd* files);
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
        more |= DrainOne(it->first, &*it->second.lane, budget, accept);
        last_drained_ = it->first;
      }
    }
    return options_.lends && HasLent();
  }

  std::size_t waiting_bytes() const;  // of current peers
  std::size_t lanes() const;

 private:
  static constexpr std::size_t kTurn = 32;

  struct State {
    bool asks = false;
    TimeUs next_ask = 0;
    std::optional<ShmGuest> guest;
    bool look = false;  // at the guest or the lane's socket
    std::optional<ShmLane> lane;
    bool must_say = false;  // Through
    bool reads = false, writes = false;
    bool heard = false;     // the other side's Through
    TimeUs through_by = 0;  // or the lane ends: the word is lost
    TimeUs pause = 0;       // before it asks again; doubles
    std::optional<Sender> sender;
  };

  // Whether the lane may have more.
  template <typename Accept>
  static bool DrainOne(Peer peer, ShmLane* lane, std::size_t* budget, Accept accept) {
    ShmFrames frames;
    for (std::size_t i = 0; i < kTurn && *budget > 0; ++i, --*budget) {
      if (!lane->Receive(&frames)) return false;
      accept(peer, &frames);
    }
    return true;
  }

  static std::string NameOf(Peer peer, const State& state);
  static bool IsStranger(Peer peer, const State& state);
  void LookForStrangers();
  static void SayLane(Peer peer, const State& state);
  bool HasLent() const;
  std::size_t TendAll(TimeUs now);
  void OnAsk(Peer from, const std::string& boot_id);
  void OnOffer(Peer from, const ShmWord& word);
  void TendOne(Peer peer, State* state, TimeUs now);
  void TakeGuest(Peer peer, State* state, TimeUs now);
  void TakeLane(Peer peer, State* state, ShmLane lane, TimeUs now);
  static std::size_t End(State* state);
  void AskLater(Peer peer, State* state, TimeUs now);
  void Schedule(TimeUs time) { next_time_ = std::min(next_time_, time); }

  ShmOptions options_;
  Say say_;
  std::string boot_id_;
  std::optional<ShmDoor> door_;
  bool door_waits_ = false;
  bool strangers_ = false;
  TimeUs listen_at_ = 0;
  std::map<Peer, State> peers_;
  TimeUs next_time_ = 0;
  bool waiting_ = false;  // a lane may have messages that wait for room
  Peer last_drained_;
};

}  // namespace tarn::net
