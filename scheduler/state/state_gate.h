// Persist, then send (rule G1): keeps back what the scheduler sends until the state behind it is on disk, while it goes
// on answering heartbeats. States are written one at a time; what changes meanwhile goes into the next one. Pure: the
// scheduler carries out what this decides.
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
  // How often a state is written in vain before the run ends, and how long the disk is left alone in between.
  static constexpr int kTriesMax = 3;
  static constexpr TimeUs kPauseUs = 10'000'000;

  // A step has put messages into `out` behind the first `sent`, and has left a state of this revision. Keeps those back
  // that may tell of a state which is not on disk: of each kind the newest for a node, limits::kHeldMessagesMax in all.
  void Pass(std::uint64_t revision, std::size_t sent, Outbox* out);
  // The run ends. What ends the nodes is not kept back, and of the rest only answers to tools are of use.
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
