// Shows that what the scheduler remembers of workers that are gone is bounded, and what happens at each bound.
#include <gtest/gtest.h>

#include "core/limits.h"
#include "scheduler/membership/membership.h"
#include "scheduler/progress/progress.h"

namespace tarn::scheduler {
namespace {

// A formed fleet of one shard and some workers, driven by hand.
struct Fleet {
  explicit Fleet(std::uint32_t workers, Membership::Options options = {}) : membership(Prepare(workers, options)) {
    Join shard{
        .role = Role::kShard, .rank = 0, .nonce = 1, .protocol_version = limits::kProtocolVersion, .endpoint = "e"};
    membership.OnJoin(Peer(1), shard, 0, mail);
    for (std::uint32_t rank = 0; rank < workers; ++rank) JoinAs(rank);
    membership.Form(0);
    Confirm();
  }
  static Membership::Options Prepare(std::uint32_t workers, Membership::Options options) {
    options.workers = workers;
    options.lease_us = options.heartbeat_us = 1'000'000;
    return options;
  }
  // A new process of the rank; returns its nonce.
  std::uint64_t JoinAs(std::uint32_t rank) {
    JoinWith(rank, ++nonce);
    return nonce;
  }
  void JoinWith(std::uint32_t rank, std::uint64_t with) {
    Join join{.role = Role::kWorker,
              .rank = rank,
              .nonce = with,
              .protocol_version = limits::kProtocolVersion,
              .endpoint = {}};
    out.clear();
    membership.OnJoin(Peer(2), join, 0, mail);
  }
  bool Refused() const { return !out.empty() && std::holds_alternative<Shutdown>(out.back().message.body); }
  // The shard adopts the newest view, and has all clocks up to `clock`.
  void Confirm(Clock clock = Clock(0)) {
    Heartbeat beat;
    beat.view = membership.view().version;
    beat.clock = clock;
    for (const WorkerEntry& entry : membership.view().workers)
      if (entry.state == WorkerState::kFencing) beat.fenced.push_back({entry.incarnation, Clock(0), {}, Clock(0)});
    membership.OnHeartbeat(ShardId(0), beat, 0, mail);
  }
  Incarnation Newest() const { return membership.workers().all().rbegin()->first; }

  Outbox out;
  Mailer mail{0, &out, Epoch(1)};
  Membership membership;
  std::uint64_t nonce = 100;
};

TEST(Limits, TheOldestStartsAreForgottenNotAnyOthers) {
  Membership::Options options;
  options.nonces_kept = 4;
  Fleet fleet(1, options);
  // Joining before the fence of the last is through: each forgets the one that waits. Nonces go down, so that age and
  // value disagree.
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t with = 90; with > 87; --with) {
    fleet.JoinWith(0, with);
    nonces.push_back(with);
  }
  EXPECT_EQ(fleet.membership.workers().starts_known(), 4u);  // at the limit: all are known
  fleet.JoinWith(0, nonces[0]);
  EXPECT_TRUE(fleet.Refused());
  fleet.membership.TakeVerdicts();
  fleet.JoinWith(0, 87);  // one past it: the oldest that is over goes, which is the first of these three
  EXPECT_EQ(fleet.membership.workers().starts_known(), 4u);
  fleet.JoinWith(0, nonces[1]);
  EXPECT_TRUE(fleet.Refused());
  fleet.JoinWith(0, nonces[0]);
  EXPECT_FALSE(fleet.Refused());
}

TEST(Limits, AViewHoldsSoManyEntriesAndFurtherJoinersWait) {
  Membership::Options options;
  options.worker_entries_max = 3;
  Fleet fleet(2, options);
  auto rejoin = [&] {  // worker 0 dies and comes back
    fleet.JoinAs(0);
    fleet.Confirm();
    fleet.membership.TakeVerdicts();
    fleet.Confirm();
    if (!fleet.membership.JoinersReady()) return false;
    fleet.membership.AdmitJoiners(Clock(50));
    fleet.Confirm();
    return true;
  };
  EXPECT_TRUE(rejoin());  // at the limit: two that live, one ended at a clock that has not passed everywhere
  fleet.membership.Fence(fleet.Newest());
  fleet.Confirm();
  fleet.membership.TakeVerdicts();  // ended at clock 50
  fleet.Confirm();
  EXPECT_EQ(fleet.membership.view().workers.size(), 2u);  // clock 0 has passed: the first one went
  EXPECT_TRUE(rejoin());
  fleet.membership.Fence(fleet.Newest());
  fleet.Confirm();
  fleet.membership.TakeVerdicts();
  fleet.Confirm();
  EXPECT_EQ(fleet.membership.view().workers.size(), 3u);
  EXPECT_FALSE(rejoin());  // one past it
  fleet.Confirm(Clock(50));
  EXPECT_TRUE(fleet.membership.JoinersReady());
  EXPECT_EQ(fleet.membership.AdmitJoiners(Clock(60)).size(), 1u);
  EXPECT_LE(fleet.membership.view().workers.size(), 3u);
}

TEST(Limits, EndedWorkersAreKeptSoFar) {
  Fleet fleet(1);
  const Incarnation first = fleet.Newest();
  for (std::size_t i = 0; i < kEndedWorkersKept; ++i) {
    fleet.membership.OnLeave(fleet.Newest(), Leave{});
    if (i + 1 == kEndedWorkersKept) break;
    fleet.JoinAs(0);
    fleet.Confirm();
    fleet.membership.AdmitJoiners(Clock(0));
    fleet.Confirm();
  }
  EXPECT_TRUE(fleet.membership.workers().Left(first));  // at the limit
  for (int i = 0; i < 2; ++i) {
    fleet.JoinAs(0);
    fleet.Confirm();
    fleet.membership.AdmitJoiners(Clock(0));
    fleet.Confirm();
    fleet.membership.OnLeave(fleet.Newest(), Leave{});
  }
  fleet.JoinAs(0);
  fleet.membership.AdmitJoiners(Clock(0));
  EXPECT_FALSE(fleet.membership.workers().Left(first));  // beyond
}

Heartbeat Beat(const std::string& name, double value) {
  Heartbeat beat;
  beat.counters = {{name, value}};
  beat.staleness = {1, 2};
  return beat;
}

TEST(Limits, TotalsKeepOneSetANodeAndTheSumOfThoseThatEnded) {
  Totals totals;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    totals.OnHeartbeat({Role::kWorker, 0, Incarnation(i)}, Beat("pull_bytes", 3));
    totals.End(Incarnation(i));
  }
  totals.OnHeartbeat({Role::kWorker, 0, Incarnation(5000)}, Beat("pull_bytes", 4));
  EXPECT_EQ(totals.nodes(), 1u);
  EXPECT_EQ(totals.Counters().at("pull_bytes"), 3004);
  EXPECT_EQ(totals.Staleness(), (std::vector<std::uint64_t>{1001, 2002}));
}

TEST(Limits, TotalsKeepSoManyNamesOfThoseThatEnded) {
  Totals totals;
  for (std::uint64_t i = 1; i <= Totals::kEndedNamesMax + 1; ++i) {
    totals.OnHeartbeat({Role::kWorker, 0, Incarnation(i)}, Beat("name" + std::to_string(i), 1));
    totals.End(Incarnation(i));
    EXPECT_EQ(totals.Counters().contains("name" + std::to_string(i)), i <= Totals::kEndedNamesMax);
  }
  EXPECT_EQ(totals.Counters().size(), Totals::kEndedNamesMax);
}

}  // namespace
}  // namespace tarn::scheduler
