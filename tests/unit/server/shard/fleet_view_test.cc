// Shows rules N3, M3 and M4: a view adds tables and members, and the state that is kept for ended workers is dropped.
#include "server/shard/fleet_view.h"

#include <gtest/gtest.h>

#include "tests/unit/server/shard/shard_parts_fixture.h"

namespace tarn::server {
namespace {

TableSpec Table() { return CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated); }

class FleetViewTest : public PartsTest {
 protected:
  FleetView& view() { return parts_->view; }
  void HoldAList(Incarnation worker) {
    const Key key = 7;
    parts_->lists.Keep(worker, {.count = 1, .list = 3, .frame = Buffer::Copy(&key, sizeof key)});
  }
};

TEST_F(FleetViewTest, AddsTablesWithTheirPolicies) {
  ASSERT_TRUE(view().Adopt(ViewOf(1, {LiveWorker(0, 10)}, {Table()})));
  EXPECT_EQ(view().view().version, ViewVersion(1));
  EXPECT_NE(parts_->rows.FindTable(kTable), nullptr);
  EXPECT_EQ(parts_->policies[kTable].WantedClock(Incarnation(10), Clock(4), {}), Clock(4));
  TableSpec other = Table();
  other.consistency = {ConsistencyMode::kSsp, 2, ApplyMode::kImmediate};
  ASSERT_TRUE(view().Adopt(ViewOf(2, {LiveWorker(0, 10)}, {other})));
  EXPECT_EQ(parts_->policies[kTable].WantedClock(Incarnation(10), Clock(4), {}), Clock(2));
}

TEST_F(FleetViewTest, TheViewIsLoggedBeforeItTakesEffect) {
  std::size_t members = 99;
  ASSERT_TRUE(view().Adopt(ViewOf(1, {LiveWorker(0, 10)}, {Table()}),
                           [&] { members = parts_->clocks.cohort().members().size(); }));
  EXPECT_EQ(members, 0u);
  EXPECT_EQ(parts_->clocks.cohort().members().size(), 1u);
}

TEST_F(FleetViewTest, PartitionsDoNotMove) {
  View moved = ViewOf(1, {}, {});
  moved.routes.owners[0] = ShardId(1);
  EXPECT_EQ(view().Adopt(moved).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(view().view().version, ViewVersion(0));
}

TEST_F(FleetViewTest, ListsAndWatermarksOfAnEndedWorkerAreDropped) {
  ASSERT_TRUE(view().Adopt(ViewOf(1, {LiveWorker(0, 10), LiveWorker(1, 11)}, {Table()})));
  HoldAList(Incarnation(10));
  HoldAList(Incarnation(11));
  Partition& partition = *parts_->rows.Find(PartitionId(2));
  partition.watermarks().Advance(Incarnation(10));
  WorkerEntry fencing = LiveWorker(0, 10);
  fencing.state = WorkerState::kFencing;
  ASSERT_TRUE(view().Adopt(ViewOf(2, {fencing, LiveWorker(1, 11)}, {Table()})));
  EXPECT_EQ(parts_->lists.Find(Incarnation(10), 3), nullptr);
  EXPECT_NE(parts_->lists.Find(Incarnation(11), 3), nullptr);
  EXPECT_EQ(partition.watermarks().Of(Incarnation(10)), Sequence(1)) << "until the view has forgotten it";
  ASSERT_TRUE(view().Adopt(ViewOf(3, {LiveWorker(1, 11)}, {Table()})));
  EXPECT_EQ(partition.watermarks().Of(Incarnation(10)), Sequence(0));
}

TEST_F(FleetViewTest, ANewRouteEpochDropsAllListsAndIsInLaterMessages) {
  ASSERT_TRUE(view().Adopt(ViewOf(1, {LiveWorker(0, 10)}, {Table()})));
  HoldAList(Incarnation(10));
  routes_.epoch = Epoch(2);
  ASSERT_TRUE(view().Adopt(ViewOf(2, {LiveWorker(0, 10)}, {Table()})));
  EXPECT_EQ(parts_->lists.Find(Incarnation(10), 3), nullptr);
  EXPECT_EQ(step_.Make(TickAck{}).epoch, Epoch(2));
}

}  // namespace
}  // namespace tarn::server
