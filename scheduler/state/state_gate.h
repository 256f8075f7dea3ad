// Persist, then send (rule G1): holds back what the scheduler sends until the state that it depends on is on disk;
// heartbeats are still answered. States are written one at a time; changes made meanwhile go into the next one. It
// makes decisions only; StateKeeper carries them out.
//
//   gate.Pass(revision, sent, out);                       // at the end of each step
//   if (gate.MayBegin(now)) store->WriteState(gate.Begin(version, now), Capture());
//   gate.OnWritten(number, out);                          // releases what waited for it
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "core/message.h"

namespace tarn::scheduler {

class StateGate {
 public:
  // After how many failed writes in a row the run ends, and the pause between them.
  static constexpr int kTriesMax = 3;
  static constexpr TimeUs kPauseUs = 10'000'000;

  // A step has put messages into `out` behind the first `sent`, and has left a state of this revision. Holds back the
  // messages that may reveal a state which is not on disk: for each node the newest of a kind, limits::kHeldMessagesMax
  // in all.
  void Pass(std::uint64_t revision, std::size_t sent, Outbox* out);
  // The run ends. Shutdowns are not held back, and of all other messages only answers to tools are kept.
  void End();

  // Whether the state is to be written now.
  bool MayBegin(TimeUs now) const { return !writing() && !durable() && now >= not_before_ && failures_ < kTriesMax; }
  // It is being written, with a view of this version. Returns the number of the write.
  std::uint64_t Begin(ViewVersion version, TimeUs now);
  // The write has ended. False: it was not the one under way.
  bool OnWritten(std::uint64_t number, Outbox* out);
  bool OnFailed(std::uint64_t number, TimeUs now);

  bool durable() const { return durable_ == newest_; }  // the state as it is now
  bool writing() const { return writing_ != 0; }
  TimeUs since() const { return since_; }     // of the write under way
  int failures() const { return failures_; }  // one after the other
  std::size_t held() const { return waiting_.size() + leaving_.size(); }

 private:
  // A node, a kind of message and, of answers that do not replace each other, what they are about.
  using Slot = std::tuple<Peer, std::size_t, std::uint64_t>;
  using Held = std::map<Slot, Outgoing>;

  bool MayLeave(const Body& body) const;
  void Hold(Outgoing outgoing);

  std::uint64_t revision_ = 0;                            // of the newest state
  std::uint64_t newest_ = 0, durable_ = 0, writing_ = 0;  // states, counted from 1; 0: none
  ViewVersion durable_version_, writing_version_;
  bool ending_ = false;
  int failures_ = 0;
  TimeUs not_before_ = 0, since_ = 0;
  Held waiting_, leaving_;  // for the next write, for the one under way
};

}  // namespace tarn::scheduler
