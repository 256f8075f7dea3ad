// Shows which parts of a message are logged: the sections that the shard took, with their bytes, and no others.
#include "server/shard/logged_inputs.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

constexpr std::uint32_t kDim = 2;
constexpr std::size_t kRowBytes = kDim * sizeof(float);
const TableSpec kTable{.name = "t", .dim = kDim};

struct Pushed {
  const Sender sender{Role::kWorker, 7, Incarnation(9)};
  const std::vector<Key> keys{10, 20, 21, 30};
  const std::vector<float> rows{1, 1, 2, 2, 3, 3, 4, 4};
  PushPart push{.table = TableId(1),
                .keys = {KeyCodec::kRaw,
                         0,
                         4,
                         {{PartitionId(0), 1, Sequence(5)}, {PartitionId(2), 2, Sequence(6)}, {PartitionId(3), 1, {}}},
                         0,
                         Buffer::CopyOf(std::span<const Key>(keys))},
                .values = Buffer::CopyOf(std::span<const float>(rows))};
  LoggedPush Taken(const std::vector<bool>& taken) const {
    return TakenOf(sender, Clock(3), push, keys, taken, kTable);
  }
};

TEST(LoggedInputsTest, APushThatWasTakenWholeSharesItsBytes) {
  const Pushed p;
  const LoggedPush logged = p.Taken({true, true, true});
  EXPECT_EQ(logged.incarnation, Incarnation(9));
  EXPECT_EQ(logged.rank, WorkerRank(7));
  EXPECT_EQ(logged.clock, Clock(3));
  EXPECT_EQ(logged.push.keys.frame.data(), p.push.keys.frame.data());
  EXPECT_EQ(logged.push.values.data(), p.push.values.data());
  EXPECT_EQ(logged.push.keys.sections.size(), 3u);
}

TEST(LoggedInputsTest, SectionsThatWereNotTakenAreLeftOut) {
  const Pushed p;
  const LoggedPush logged = p.Taken({true, false, true});
  ASSERT_EQ(logged.push.keys.count, 2u);
  ASSERT_EQ(logged.push.keys.sections.size(), 2u);
  EXPECT_EQ(logged.push.keys.sections[1].partition, PartitionId(3));
  EXPECT_EQ(logged.push.keys.frame.as<Key>()[0], 10u);
  EXPECT_EQ(logged.push.keys.frame.as<Key>()[1], 30u);
  EXPECT_EQ(logged.push.values.as<float>()[0], 1.0f);
  EXPECT_EQ(logged.push.values.as<float>()[2], 4.0f);
}

TEST(LoggedInputsTest, EachGatheredSectionIsLoggedAsOnePush) {
  const Pushed p;
  const Contribution second{.table = TableId(1),
                            .partition = PartitionId(2),
                            .rank = WorkerRank(7),
                            .incarnation = Incarnation(9),
                            .sequence = Sequence(6),
                            .count = 2,
                            .keys = p.push.keys.frame,
                            .key_offset = 1,
                            .values = p.push.values,
                            .value_offset = kRowBytes};
  const LoggedPush logged = GatheredOf(Clock(3), second, kTable).push;
  EXPECT_EQ(logged.clock, Clock(3));
  ASSERT_EQ(logged.push.keys.sections.size(), 1u);
  EXPECT_EQ(logged.push.keys.sections[0].sequence, Sequence(6));
  EXPECT_EQ(logged.push.keys.frame.as<Key>()[0], 20u);
  EXPECT_EQ(logged.push.values.as<float>()[3], 3.0f);
}

TEST(LoggedInputsTest, ADeletionHasNoValues) {
  Pushed p;
  p.push.action = PushAction::kDelete;
  p.push.values = {};
  const LoggedPush logged = p.Taken({true, false, true});
  EXPECT_EQ(logged.push.action, PushAction::kDelete);
  EXPECT_EQ(logged.push.keys.frame.as<Key>()[1], 30u);
  EXPECT_TRUE(logged.push.values.empty());
  const Contribution second{.partition = PartitionId(2),
                            .count = 2,
                            .keys = p.push.keys.frame,
                            .key_offset = 1,
                            .action = PushAction::kDelete};
  const LoggedPush gathered = GatheredOf(Clock(3), second, kTable).push;
  EXPECT_EQ(gathered.push.action, PushAction::kDelete);
  EXPECT_EQ(gathered.push.keys.frame.as<Key>()[1], 21u);
  EXPECT_TRUE(gathered.push.values.empty());
}

TEST(LoggedInputsTest, AViewNamesTheNewestOrder) {
  View view;
  view.checkpoint.id = CheckpointId(4);
  EXPECT_EQ(ViewOf(view, CheckpointId(2)).newest_order, CheckpointId(4));
  EXPECT_EQ(ViewOf(view, CheckpointId(6)).newest_order, CheckpointId(6));
}

}  // namespace
}  // namespace tarn::server
