// The scheduler's state of each node: shards and workers. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "core/message.h"

namespace tarn::scheduler {

// A node repeats its join every second or more often until it is welcomed. Until then it is dead only after this time
// without a message, even if leases are shorter.
constexpr TimeUs kJoinerSilenceMaxUs = 3'000'000;

// The newest view sent to a node, and the time.
struct ViewSent {
  ViewVersion version;
  TimeUs at = 0;
};

struct ShardNode {
  ShardId shard;
  Incarnation incarnation;
  std::uint64_t nonce = 0;
  Peer peer;
  std::string endpoint;
  bool joined = false;
  TimeUs heard = 0;     // when its last message arrived
  TimeUs welcomed = 0;  // time when the fleet was complete; from then until it confirms a view it loads its rows
  ViewSent view_sent;
  ViewVersion confirmed;
  Clock min_clock;
  CheckpointId writing;  // the oldest checkpoint to which it may still write, as of `confirmed`; 0: none
  LogSequence logged;    // durable in its log
  std::uint64_t log_bytes = 0;
  // A second process with this rank that joined before the fleet was complete.
  std::uint64_t rival = 0;  // nonce; 0: none
  TimeUs rival_since = 0;
};

struct WorkerNode {
  // kWaiting: not in the view yet.
  enum class State : std::uint8_t { kWaiting, kLive, kFencing, kEnded };
  WorkerRank rank;
  Incarnation incarnation;
  std::uint64_t nonce = 0;
  Peer peer;
  State state = State::kWaiting;
  bool welcomed = false;
  bool left = false;                // it sent Leave (M5)
  bool continues = false;           // from the blobs of the checkpoint that the run resumes from
  bool keeps_state = false;         // its program keeps state in checkpoints (rule K9)
  bool shutdown_confirmed = false;  // it has confirmed its Shutdown (rule S1)
  TimeUs heard = 0;                 // when its last message arrived
  ViewSent view_sent;
  ViewVersion live_version;  // the view that made it live
  ViewVersion confirmed;
  std::uint64_t proposal = 0;  // the newest one adopted
  std::uint64_t drained = 0;   // the newest one for which it has drained
  Clock join, clock, acked_clock;
  TimeUs ticked = 0;  // when a heartbeat raised acked_clock, or when the worker became live
  DataPosition position;

  bool live() const { return state == State::kLive; }
};

}  // namespace tarn::scheduler
