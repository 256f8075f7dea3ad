// Shows CurrentView alone: each change is a new version, and entries are removed once no shard needs them (rule M4).
#include "scheduler/membership/current_view.h"

#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/nodes_fixture.h"

namespace tarn::scheduler {
namespace {

class CurrentViewTest : public testing::Test {
 protected:
  static WorkerNode Node(std::uint32_t rank, std::uint64_t incarnation) {
    WorkerNode worker;
    worker.rank = WorkerRank(rank);
    worker.incarnation = Incarnation(incarnation);
    worker.join = Clock(5);
    return worker;
  }
  void Confirm(Clock clock) {
    const ViewVersion newest = view_.get().version;
    shards_.OnHeartbeat(ShardId(0), ShardBeat(newest, clock), newest, ViewVersion(0));
  }
  std::uint64_t version() const { return view_.get().version.value; }

  Shards shards_{{.count = 1}};
  CurrentView view_{3, 2, &shards_};
};

TEST_F(CurrentViewTest, TheFirstViewSpreadsThePartitions) {
  view_.Form({"a", "b"});
  EXPECT_EQ(version(), 1u);
  EXPECT_EQ(view_.get().routes.epoch, Epoch(1));
  EXPECT_EQ(view_.get().routes.owners.size(), 8u);
  EXPECT_EQ(OwnerOf(view_.get().routes, PartitionId(7)), ShardId(1));
  EXPECT_EQ(view_.get().routes.endpoints, (std::vector<std::string>{"a", "b"}));
}

TEST_F(CurrentViewTest, EachChangeIsANewVersion) {
  view_.Form({"a"});
  CheckpointOrder order;
  order.id = CheckpointId(4);
  view_.SetOrder(order);
  EXPECT_EQ(view_.get().checkpoint.id, CheckpointId(4));
  view_.OpenProposal(true);
  EXPECT_TRUE(view_.get().proposal.open && view_.get().proposal.drain);
  view_.CloseProposal();
  EXPECT_FALSE(view_.get().proposal.open || view_.get().proposal.drain);
  EXPECT_EQ(view_.get().proposal.id, 1u);
  view_.SetWhole(CheckpointId(4));
  EXPECT_EQ(view_.whole_since(), ViewVersion(5));
  TableSpec table;
  table.id = TableId(1);
  table.dim = 4;
  view_.PutTable(table);
  table.dim = 8;
  view_.PutTable(table);
  ASSERT_EQ(view_.get().tables.size(), 1u);
  EXPECT_EQ(view_.get().tables[0].dim, 8u);
  EXPECT_EQ(version(), 7u);
}

TEST_F(CurrentViewTest, WorkersAreInOrderOfRankAndIncarnation) {
  view_.Form({"a"});
  view_.Change();
  for (const auto& [rank, incarnation] : {std::pair(1u, 3u), {0u, 9u}, {0u, 2u}})
    view_.AddWorker(Node(rank, incarnation));
  EXPECT_EQ(version(), 2u);
  std::vector<std::uint64_t> order;
  for (const WorkerEntry& entry : view_.get().workers) order.push_back(entry.incarnation.value);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{2, 9, 3}));
}

TEST_F(CurrentViewTest, M4AnEntryIsRemovedOnceShardsHaveSeenItsEndAndPassedItsClock) {
  view_.Form({"a"});
  view_.Change();
  view_.AddWorker(Node(0, 1));
  view_.AddWorker(Node(1, 2));
  view_.Fence(Incarnation(1));
  EXPECT_EQ(view_.get().workers[0].state, WorkerState::kFencing);
  EXPECT_EQ(view_.Room(), 0u);
  view_.End(Incarnation(1), Clock(7));
  EXPECT_EQ(view_.get().workers[0].end, Clock(7));
  Confirm(Clock(6));
  EXPECT_EQ(view_.Room(), 0u);
  Confirm(Clock(7));
  EXPECT_EQ(view_.Room(), 1u);
  view_.Change();
  ASSERT_EQ(view_.get().workers.size(), 1u);
  EXPECT_EQ(view_.get().workers[0].incarnation, Incarnation(2));
}

TEST_F(CurrentViewTest, ARestoredViewKeepsOwnersAndFencesLiveWorkers) {
  view_.Form({"a"});
  view_.AddWorker(Node(0, 1));
  SchedulerState state;
  view_.Capture(&state);
  state.owners.assign(8, ShardId(1));
  CurrentView restored(3, 2, &shards_);
  restored.Restore(state);
  EXPECT_EQ(restored.get().version, state.version);
  EXPECT_EQ(restored.get().workers.at(0).state, WorkerState::kFencing);
  restored.Form({"a", "b"});
  EXPECT_EQ(restored.get().routes.epoch, Epoch(state.epoch.value + 1));
  EXPECT_EQ(restored.get().routes.owners, state.owners);
}

}  // namespace
}  // namespace tarn::scheduler
