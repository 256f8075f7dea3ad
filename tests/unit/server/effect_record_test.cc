// Shows that a record has one line for each effect, in order, that its file appears only once it is complete, and that
// a failed write is reported.
#include "server/effect_record.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/data/temp_dir.h"

namespace tarn::server {
namespace {

constexpr std::size_t kBytesMax = std::size_t{4} << 20;

Tick TickTo(std::uint64_t clock) {
  Tick tick;
  tick.clock = Clock(clock);
  return tick;
}

PushPart PushedTo(std::uint32_t table, std::vector<Section> sections) {
  return {.table = TableId(table), .keys = {.sections = std::move(sections)}};
}

class EffectRecordTest : public ::testing::Test {
 protected:
  EffectRecordTest() : path_(folder_.path() + "/shard-0"), record_(*AtomicFile::Create(path_)) {}
  bool exists() const { return ReadFile(path_, kBytesMax).has_value(); }

  testing::TempDir folder_;
  std::string path_;
  EffectRecord record_;
};

TEST_F(EffectRecordTest, HasOneLinePerEffect) {
  Push push;
  push.tables = {PushedTo(2, {{PartitionId(3), 1, Sequence(8)}, {PartitionId(5), 1, Sequence(9)}})};
  Pull pull;
  pull.clock = Clock(4);
  pull.tables = {PullPart{.table = TableId(2), .keys = push.tables[0].keys}};
  record_.OnPushTaken(WorkerRank(1), push, 1);
  record_.OnPullServed(WorkerRank(6), {}, pull, {});
  record_.OnTick(WorkerRank(1), TickTo(7));
  EXPECT_FALSE(exists());
  ASSERT_TRUE(record_.Close());
  const std::string served = ToLine(EffectOf(WorkerRank(6), pull));
  EXPECT_EQ(*ReadFile(path_, kBytesMax), "push 1 2 9 5\n" + served + "\ntick 1 0 7 0\n");
  EXPECT_EQ(ParseEffect(served), EffectOf(WorkerRank(6), pull));
}

TEST_F(EffectRecordTest, APushOfTwoTablesIsRecordedAsItsFirstNewSection) {
  Push push;
  push.tables = {PushedTo(2, {{PartitionId(3), 1, Sequence(8)}, {PartitionId(5), 1, Sequence(9)}}),
                 PushedTo(4, {{PartitionId(6), 1, Sequence(1)}, {PartitionId(7), 1, Sequence(2)}})};
  for (std::size_t first_new = 0; first_new < 4; ++first_new) record_.OnPushTaken(WorkerRank(1), push, first_new);
  push.tables[0].keys.sections.clear();
  record_.OnPushTaken(WorkerRank(1), push, 0);
  ASSERT_TRUE(record_.Close());
  EXPECT_EQ(*ReadFile(path_, kBytesMax), "push 1 2 8 3\npush 1 2 9 5\npush 1 4 1 6\npush 1 4 2 7\npush 1 4 1 6\n");
}

TEST_F(EffectRecordTest, PullsOfDifferentTablesDiffer) {
  const auto line = [](std::initializer_list<std::uint32_t> tables) {
    Pull pull;
    for (const std::uint32_t table : tables)
      pull.tables.push_back({.table = TableId(table), .keys = {.sections = {{PartitionId(3), 1, {}}}}});
    return ToLine(EffectOf(WorkerRank(1), pull));
  };
  EXPECT_EQ(line({2, 4}), line({2, 4}));
  EXPECT_NE(line({2, 4}), line({2, 5}));
  EXPECT_NE(line({2, 4}), line({2}));
}

TEST_F(EffectRecordTest, ARepeatedPullIsRecordedOnce) {
  Pull pull;
  pull.tables = {PullPart{.table = TableId(2), .keys = {.sections = {{PartitionId(3), 1, {}}}}}};
  const auto serve = [&](std::uint64_t incarnation, std::uint64_t request) {
    pull.request = RequestId(request);
    record_.OnPullServed(WorkerRank(1), Incarnation(incarnation), pull, {});
  };
  serve(5, 100);
  serve(5, 101);  // an equal pull of its own
  serve(5, 100);
  serve(6, 100);  // the worker has started again
  for (std::uint64_t request = 102; request < 100 + EffectRecord::kPullsKept; ++request) serve(5, request);
  serve(5, 100);
  ASSERT_TRUE(record_.Close());
  const std::string text = *ReadFile(path_, kBytesMax);
  EXPECT_EQ(std::ranges::count(text, '\n'), 1 + static_cast<std::ptrdiff_t>(EffectRecord::kPullsKept));
}

TEST_F(EffectRecordTest, IsWrittenInPieces) {
  std::string expected;
  for (std::uint64_t clock = 1; expected.size() < kBytesMax / 2; ++clock) {
    record_.OnTick(WorkerRank(1), TickTo(clock));
    expected += ToLine(EffectOf(WorkerRank(1), TickTo(clock))) + "\n";
  }
  ASSERT_TRUE(record_.Close());
  EXPECT_EQ(*ReadFile(path_, kBytesMax), expected);
}

TEST_F(EffectRecordTest, AFailedWriteIsReported) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (std::uint64_t clock = 1; clock < 100'000 && record_.status(); ++clock)
    record_.OnTick(WorkerRank(1), TickTo(clock));
  const Status closed = record_.Close();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(record_.status());
  ASSERT_FALSE(closed);
  EXPECT_NE(closed.error().message.find(path_), std::string::npos) << closed.error().message;
  EXPECT_FALSE(exists());
}

}  // namespace
}  // namespace tarn::server
