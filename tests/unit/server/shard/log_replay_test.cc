// Shows rules L5 and L6: a replay of records in the order in which a shard writes them reaches the state whose hash a
// later head contains, and refuses records that cannot follow.
#include "server/shard/log_replay.h"

#include <gtest/gtest.h>

#include <optional>

#include "server/shard/logged_inputs.h"
#include "server/shard/soft_state.h"
#include "tests/unit/server/shard/shard_parts_fixture.h"

namespace tarn::server {
namespace {

TableSpec Table() { return CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated); }

class LogReplayTest : public PartsTest {
 protected:
  LogReplayTest() { Open(); }
  void Open() {
    MakeParts();
    replay_.emplace("", LogReplay::Context{.rows = &parts_->rows,
                                           .view = &parts_->view,
                                           .clocks = &parts_->clocks,
                                           .pushes = &parts_->pushes,
                                           .cuts = &parts_->cuts,
                                           .stop = &stop_,
                                           .observer = &events_,
                                           .other_bytes = [] { return std::size_t{0}; }});
  }
  template <typename Logged>
  Status Take(const Logged& logged, bool begins = false) {
    return replay_->OnRecord(LogSequence(++sequence_), begins, EncodeRecord(logged));
  }
  static LoggedHead EmptyHead() { return {.partition_bits = kBits}; }
  LoggedView LoggedViewOf(std::uint64_t version) const {
    return server::ViewOf(ViewOf(version, {LiveWorker(0, 10)}, {Table()}), CheckpointId(0));
  }
  static LoggedTick TickTo(std::uint64_t clock) { return {Incarnation(10), {Clock(clock), {}, {}}}; }
  LoggedPush PushOf(std::uint64_t sequence, std::uint64_t clock) const {
    const Key key = 7;
    const TableSpec spec = Table();
    const PartitionId partition = PartitionOf(Positioner(spec, TableSalt(kJobSeed, spec.name))(key), kBits);
    LoggedPush logged{Incarnation(10), WorkerRank(0), Clock(clock), {.table = kTable}};
    logged.push.keys = {KeyCodec::kRaw, 0, 1, {{partition, 1, Sequence(sequence)}}, 0, Buffer::Copy(&key, sizeof key)};
    logged.push.values = Buffer::CopyOf(std::span<const float>(std::vector<float>{1, 1}));
    return logged;
  }
  float Value() const { return parts_->rows.Values(kTable, 7).value()[0]; }

  std::optional<LogReplay> replay_;
  std::uint64_t sequence_ = 0;
};

TEST_F(LogReplayTest, ReplayedInputsRestoreTheState) {
  ASSERT_TRUE(Take(EmptyHead(), true));
  EXPECT_TRUE(replay_->restored());
  ASSERT_TRUE(Take(LoggedViewOf(1)));
  ASSERT_TRUE(Take(PushOf(1, 0)));
  EXPECT_EQ(Value(), 0.0f);
  ASSERT_TRUE(Take(TickTo(1)));
  EXPECT_EQ(Value(), -1.0f) << "the clock has closed";
  ASSERT_TRUE(Take(LoggedTime{1'000}));
  EXPECT_EQ(parts_->rows.expiry().seconds(), 1'000u);
  EXPECT_TRUE(out_.empty()) << "nobody is answered";
}

TEST_F(LogReplayTest, TheHeadOfALaterSegmentMatchesTheReplayedState) {
  ASSERT_TRUE(Take(EmptyHead(), true));
  ASSERT_TRUE(Take(LoggedViewOf(1)));
  ASSERT_TRUE(Take(PushOf(1, 0)));
  LoggedHead head = parts_->soft_state().Head();
  EXPECT_EQ(head.gathered, 1u);
  ASSERT_TRUE(Take(head, true));
  ASSERT_TRUE(Take(LoggedGathered{PushOf(1, 0)}));
  ASSERT_TRUE(Take(PushOf(2, 1)));
  head.hash ^= 1;
  EXPECT_EQ(Take(head, true).error().code, ErrorCode::kCorrupt);
}

TEST_F(LogReplayTest, ASegmentAloneRestoresTheWholeState) {
  ASSERT_TRUE(Take(EmptyHead(), true));
  ASSERT_TRUE(Take(LoggedViewOf(1)));
  ASSERT_TRUE(Take(PushOf(1, 0)));
  ASSERT_TRUE(Take(PushOf(2, 1)));
  const LoggedHead head = parts_->soft_state().Head();
  Open();
  ASSERT_TRUE(Take(head, true));
  EXPECT_FALSE(replay_->restored()) << "gathered pushes are to come";
  EXPECT_EQ(Take(TickTo(1)).error().code, ErrorCode::kCorrupt);
  Open();
  ASSERT_TRUE(Take(head, true));
  ASSERT_TRUE(Take(LoggedGathered{PushOf(1, 0)}));
  ASSERT_TRUE(Take(LoggedGathered{PushOf(2, 1)}));
  EXPECT_TRUE(replay_->restored());
  EXPECT_EQ(parts_->soft_state().Hash(), head.hash);
  ASSERT_TRUE(Take(TickTo(1)));
  EXPECT_EQ(Value(), -1.0f);
  EXPECT_FALSE(Take(LoggedGathered{PushOf(3, 1)}));
}

// A cut that is ordered in the first view begins before the time of the rows is set. The segment must have that time
// too; otherwise a replay would push rows at time 0, and they would expire too early.
TEST_F(LogReplayTest, ASegmentThatBeginsInTheFirstViewHasTheTimeOfItsRows) {
  ASSERT_TRUE(Take(EmptyHead(), true));
  ASSERT_TRUE(Take(LoggedViewOf(1)));
  ASSERT_TRUE(Take(TickTo(6)));
  LoggedHead head = parts_->soft_state().Head();
  head.rows_clock.reset();
  Open();
  ASSERT_TRUE(Take(head, true));
  EXPECT_EQ(parts_->rows.expiry().clock(), Clock(6));
  Open();
  ASSERT_TRUE(Take(EmptyHead(), true));
  EXPECT_FALSE(parts_->rows.expiry().clock()) << "before the first view";
}

// With a backup worker, clock 1 closes when one of the two workers has finished it, but not before a cut at clock 1 is
// due: the cut waits for the other worker, which has pushed by then.
TEST_F(LogReplayTest, ACutHoldsTheSameClocksInAReplay) {
  TableSpec table = Table();
  table.consistency.backup_workers = 1;
  const auto view = [&](std::uint64_t version, std::optional<std::uint64_t> cut) {
    View of = ViewOf(version, {LiveWorker(0, 10), LiveWorker(1, 11)}, {table});
    of.checkpoint.id = CheckpointId(cut ? 3 : 0);
    of.checkpoint.at_clock = cut.has_value();
    of.checkpoint.clock = Clock(cut.value_or(0));
    return server::ViewOf(of, CheckpointId(0));
  };
  const auto push = [&](std::uint32_t rank, std::uint64_t sequence, std::uint64_t clock) {
    LoggedPush logged = PushOf(sequence, clock);
    logged.rank = WorkerRank(rank);
    logged.incarnation = Incarnation(10 + rank);
    return logged;
  };
  ASSERT_TRUE(Take(EmptyHead(), true));
  ASSERT_TRUE(Take(view(1, 1)));
  ASSERT_TRUE(Take(push(0, 1, 0)));
  ASSERT_TRUE(Take(TickTo(1)));
  EXPECT_EQ(Value(), -1.0f) << "without the other worker";
  ASSERT_TRUE(Take(push(0, 2, 1)));
  ASSERT_TRUE(Take(TickTo(2)));
  EXPECT_EQ(Value(), -1.0f) << "the cut waits";
  ASSERT_TRUE(Take(LoggedTick{Incarnation(11), {Clock(1), {}, {}}}));
  EXPECT_EQ(Value(), -1.0f) << "the cut is made before";
  LoggedHead head = parts_->soft_state().Head();
  EXPECT_EQ(head.gathered, 1u);
  ASSERT_TRUE(Take(head, true));
  EXPECT_EQ(Value(), -2.0f) << "after the cut";
  ASSERT_TRUE(Take(LoggedGathered{push(0, 2, 1)}));
  ASSERT_TRUE(Take(push(1, 1, 1)));
  EXPECT_EQ(Value(), -2.0f) << "too late";
  ASSERT_TRUE(Take(view(2, 1)));
  ASSERT_TRUE(Take(push(0, 3, 2)));
  ASSERT_TRUE(Take(TickTo(3)));
  EXPECT_EQ(Value(), -3.0f) << "the order is still in the view, and its cut is made";

  Open();
  ASSERT_TRUE(Take(head, true));
  ASSERT_TRUE(Take(LoggedGathered{push(0, 2, 1)}));
  EXPECT_EQ(Value(), -1.0f) << "the segment alone, without the rows of the checkpoint";
  ASSERT_TRUE(Take(view(2, 1)));
  ASSERT_TRUE(Take(push(0, 3, 2)));
  ASSERT_TRUE(Take(TickTo(3)));
  EXPECT_EQ(Value(), -2.0f);
}

TEST_F(LogReplayTest, RecordsInAnImpossibleOrderAreRefused) {
  EXPECT_FALSE(Take(TickTo(1), true)) << "no head where a segment begins";
  ASSERT_TRUE(Take(EmptyHead(), true));
  EXPECT_FALSE(Take(EmptyHead())) << "a head within a segment";
  EXPECT_FALSE(Take(TickTo(1))) << "of a worker that is not in the view";
  ASSERT_TRUE(Take(LoggedViewOf(1)));
  EXPECT_FALSE(Take(PushOf(2, 0))) << "the first is missing";
}

TEST_F(LogReplayTest, ALogOfAnotherNumberOfPartitionsIsRefused) {
  EXPECT_EQ(Take(LoggedHead{.partition_bits = kBits + 1}, true).error().message,
            "a log of 2^3 partitions, expected 2^2");
}

}  // namespace
}  // namespace tarn::server
