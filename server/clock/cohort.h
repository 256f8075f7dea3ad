// Membership and clocks as known to one shard: the workers that count, the last tick of each, and the minimum clock
// (rules C1, C2, E4, M3, M4). Updated by views and ticks. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/view.h"

namespace tarn::server {

class Cohort {
 public:
  struct Member {
    WorkerEntry entry;
    Clock tick;             // the highest clock ticked to; before the first tick the join clock
    DataPosition position;  // of that tick
    Clock pushed;           // one past the highest clock with an immediately applied push; 0: none
    // Earlier ticks, ascending: those above the minimum clock and the last one before them; at most the newest
    // limits::kTicksKeptMax.
    std::vector<TickPoint> earlier;
    // The time of the last tick, and the time per clock between the last two ticks. 0: unknown. Logs do not contain
    // them.
    TimeUs ticked_at = 0, clock_us = 0;
  };

  // The changes by a new view. Each incarnation is at most once in each list.
  struct Changes {
    std::vector<Incarnation> refused;                  // no longer served: drop its parked pulls
    std::vector<std::pair<Incarnation, Clock>> ended;  // verdict: void its gathered pushes of clocks >= end
    std::vector<Incarnation> dropped;                  // no longer in the view: drop all state of it
  };
  Changes Adopt(const std::vector<WorkerEntry>& entries);

  // The live member that sent a message. kUnavailable: not in the view yet (rule E4); kFenced: the incarnation is
  // fenced or has ended, a newer one has replaced it, or the sender's rank is not that of its incarnation.
  Expected<const Member*> Check(const Sender& sender) const;

  // Records a tick of the live worker `incarnation` that arrived at `now`; 0: at an unknown time. An older tick changes
  // nothing.
  void Tick(Incarnation incarnation, const struct Tick& tick, TimeUs now = 0);
  // Whether Tick would change anything.
  bool IsNews(Incarnation incarnation, const struct Tick& tick) const;
  // Records that a push of `clock` was applied immediately.
  void NotePushed(Incarnation incarnation, Clock clock);

  // The minimum clock (rule C2). Never decreases.
  Clock minimum() const { return minimum_; }
  // The open clock (rule C8): the (backups + 1)-th smallest tick of the live and fencing workers; with `backups` or
  // fewer of them, the largest tick or end clock. While a cut is due, it passes the cut's clock only together with the
  // minimum clock. Never decreases.
  Clock Open(std::uint32_t backups) const;
  // The number of workers that count for clock `t` and have ticked beyond it.
  std::uint32_t Finished(Clock t) const;
  // Whether this worker is one of them.
  bool HasFinished(Incarnation incarnation, Clock t) const;
  // Sets the clock of the cut that is due, for Open; nullopt: none.
  void HoldAt(std::optional<Clock> cut) { hold_ = cut.value_or(Clock(UINT64_MAX)); }
  // The highest clock that any worker of the view has ticked to.
  Clock maximum() const;
  // Number of workers that count for clock `t`. Equal on all shards when t may close.
  std::uint32_t Size(Clock t) const;
  // Input of the scheduler's verdict (rule M3): one entry for each worker that is being fenced.
  std::vector<FencedTick> Fenced() const;
  // Earlier ticks of these workers, ascending; the first limits::kFencedTicksMax.
  std::vector<WorkerTick> FencedTicks() const;
  // Restores the state from a log.
  void Restore(std::map<Incarnation, Member> members, Clock minimum);

  const std::map<Incarnation, Member>& members() const { return members_; }

 private:
  static bool CountsForMinimum(const Member& member) { return member.entry.state != WorkerState::kEnded; }
  void CountTicks();
  void UpdateMinimum();
  void KeepEarlier(Member* member, const std::vector<TickPoint>& reported) const;

  std::map<Incarnation, Member> members_;
  std::map<Clock, std::uint32_t> ticks_;  // for the members that count for the minimum: tick -> number of members
  Clock minimum_;
  Clock hold_{UINT64_MAX};
};

}  // namespace tarn::server
