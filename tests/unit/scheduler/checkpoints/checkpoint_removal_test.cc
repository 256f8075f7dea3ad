// Shows when the directories of replaced or abandoned checkpoints are removed.
#include "scheduler/checkpoints/checkpoint_removal.h"

#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/nodes_fixture.h"
#include "tests/unit/scheduler/memory_store.h"

namespace tarn::scheduler {
namespace {

using Texts = std::vector<std::string>;

class RemovalTest : public testing::Test {
 protected:
  Texts TakeRemoved() { return std::exchange(store_.removed, {}); }

  MemoryStore store_;
};

TEST_F(RemovalTest, WithoutAStateReplacedCheckpointsAreRemovedAtOnce) {
  CheckpointRemoval removal(false, &store_);
  removal.Replace({"a", "b"});
  EXPECT_EQ(TakeRemoved(), (Texts{"a", "b"}));
}

TEST_F(RemovalTest, WithAStateTheyAreRemovedOnceItListsThemOnDisk) {
  CheckpointRemoval removal(true, &store_);
  removal.Replace({"a"});
  removal.OnStateBegun();
  removal.Replace({"b"});  // that state does not list it
  EXPECT_EQ(removal.Outdated(), (Texts{"a", "b"}));
  removal.OnStateWritten();
  EXPECT_EQ(TakeRemoved(), Texts{"a"});
  removal.OnStateBegun();
  removal.OnStateFailed();
  removal.OnStateWritten();
  EXPECT_EQ(TakeRemoved(), Texts{});
  removal.OnStateBegun();
  removal.OnStateWritten();
  EXPECT_EQ(TakeRemoved(), Texts{"b"});
}

TEST_F(RemovalTest, AStateListsWhatTheStoreIsStillRemoving) {
  CheckpointRemoval removal(true, &store_);
  store_.removing = {"slow"};
  removal.Replace({"a"});
  EXPECT_EQ(removal.Outdated(), (Texts{"slow", "a"}));
}

TEST_F(RemovalTest, RestoredOnesAreRemovedAfterTheFirstStateOfThisStart) {
  CheckpointRemoval removal(true, &store_);
  SchedulerState state;
  state.outdated = {"old"};
  state.pending_directory = "half";
  removal.Restore(state);
  EXPECT_EQ(TakeRemoved(), Texts{});
  removal.OnStateBegun();
  removal.OnStateWritten();
  EXPECT_EQ(TakeRemoved(), (Texts{"old", "half"}));
}

TEST_F(RemovalTest, AbandonedOnesStayWhileAShardMayWriteIntoThem) {
  CheckpointRemoval removal(true, &store_);
  Shards shards({.count = 1});
  removal.Abandon(CheckpointId(4), "a", ViewVersion(6));
  removal.Abandon(CheckpointId(5), "", ViewVersion(6));  // no directory: only hashes were ordered
  removal.RemoveAbandoned(shards);
  EXPECT_EQ(TakeRemoved(), Texts{});
  shards.OnHeartbeat(ShardId(0), ShardBeat(ViewVersion(6)), ViewVersion(6), ViewVersion(0));
  removal.RemoveAbandoned(shards);
  EXPECT_EQ(TakeRemoved(), Texts{"a"});
}

TEST_F(RemovalTest, AtTheEndAbandonedOnesAreRemoved) {
  CheckpointRemoval removal(true, &store_);
  removal.Abandon(CheckpointId(4), "a", ViewVersion(6));
  removal.RemoveAllAbandoned();
  removal.RemoveAllAbandoned();
  EXPECT_EQ(TakeRemoved(), Texts{"a"});
}

}  // namespace
}  // namespace tarn::scheduler
