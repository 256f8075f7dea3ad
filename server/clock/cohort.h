// Membership and clocks as one shard knows them: who counts, how far each worker has ticked, the minimum clock
// (rules C1, C2, E4, M3, M4). Fed by views and ticks; decides nothing about messages. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/view.h"

namespace tarn::server {

class Cohort {
 public:
  struct Member {
    WorkerEntry entry;
    Clock tick;             // highest ticked to; the join clock before the first tick
    DataPosition position;  // of that tick
    Clock pushed;           // one past the highest clock of which a push was applied at once; 0: none
    // Ticks before that one, ascending: those beyond the minimum clock, and the last before them; the newest
    // limits::kTicksKeptMax.
    std::vector<TickPoint> earlier;
  };

  // What a new view changed; each incarnation at most once in each list.
  struct Changes {
    std::vector<Incarnation> refused;                  // from now on: drop its parked pulls
    std::vector<std::pair<Incarnation, Clock>> ended;  // verdict: void its gathered pushes of clocks >= end
    std::vector<Incarnation> dropped;                  // no longer in the view: drop every record of it
  };
  Changes Adopt(const std::vector<WorkerEntry>& entries);

  // The live member that sent a message. kUnavailable: not in the view yet (rule E4); kFenced: its time is over, or
  // its rank is another's.
  Expected<const Member*> Check(const Sender& sender) const;

  // The live worker `incarnation` has ticked. An older tick changes nothing.
  void Tick(Incarnation incarnation, const struct Tick& tick);
  // Whether it would change anything.
  bool IsNews(Incarnation incarnation, const struct Tick& tick) const;
  // A push of `clock` was applied at once.
  void NotePushed(Incarnation incarnation, Clock clock);

  // Rule C2. Never goes back.
  Clock minimum() const { return minimum_; }
  // Highest clock that any worker of the view has ticked to.
  Clock maximum() const;
  // How many workers clock `t` waits for; the same on every shard once t may close.
  std::uint32_t Size(Clock t) const;
  // What the scheduler needs for a verdict (rule M3): one for each entry that is being fenced.
  std::vector<FencedTick> Fenced() const;
  // Earlier ticks of the same, ascending; the first limits::kFencedTicksMax.
  std::vector<WorkerTick> FencedTicks() const;
  // The state as a log has it.
  void Restore(std::map<Incarnation, Member> members, Clock minimum);

  const std::map<Incarnation, Member>& members() const { return members_; }

 private:
  static bool HoldsBack(const Member& member) { return member.entry.state != WorkerState::kEnded; }
  void CountTicks();
  void UpdateMinimum();
  void KeepEarlier(Member* member, const std::vector<TickPoint>& told) const;

  std::map<Incarnation, Member> members_;
  std::map<Clock, std::uint32_t> ticks_;  // of members that hold the minimum back: how many have ticked to it
  Clock minimum_;
};

}  // namespace tarn::server
