// Shows when a shard warns that the disk of its log does not respond, and the duration that the warning names.
#include "server/log_watch.h"

#include <gtest/gtest.h>

#include <vector>

namespace tarn::server {
namespace {

constexpr TimeUs kUptime = 1'585'000'000;  // the clock counts from the start of the machine
constexpr TimeUs kTurn = 100'000;

// Runs turns of a loop from `*now` on, for `length`, while the log's state is `durable` and `synced`. Returns the
// durations that were warned of.
std::vector<TimeUs> Turns(LogWatch* watch, TimeUs* now, TimeUs length, bool durable, std::uint64_t synced) {
  std::vector<TimeUs> warnings;
  for (const TimeUs end = *now + length; *now < end; *now += kTurn)
    if (const auto silent = watch->Note(*now, durable, LogSequence(synced))) warnings.push_back(*silent);
  return warnings;
}

// The Welcome is the first message, and the record that it logs is not yet durable at the end of the first turn.
TEST(LogWatchTest, TheFirstTurnDoesNotWarnOfTheTimeSinceBoot) {
  LogWatch watch;
  TimeUs now = kUptime;
  EXPECT_TRUE(Turns(&watch, &now, kWaitNotePeriodUs, false, 0).empty());
  EXPECT_EQ(Turns(&watch, &now, 3 * kWaitNotePeriodUs, false, 0),
            (std::vector{kWaitNotePeriodUs, 2 * kWaitNotePeriodUs, 3 * kWaitNotePeriodUs}));
}

TEST(LogWatchTest, ADiskThatRespondsIsNotWarnedOf) {
  LogWatch watch;
  TimeUs now = kUptime;
  for (std::uint64_t synced = 0; synced < 10; ++synced)
    EXPECT_TRUE(Turns(&watch, &now, kWaitNotePeriodUs - kTurn, false, synced).empty());
  EXPECT_TRUE(Turns(&watch, &now, 10 * kWaitNotePeriodUs, true, 10).empty());
  EXPECT_TRUE(Turns(&watch, &now, kWaitNotePeriodUs, false, 10).empty())
      << "it counts from the first record that waits";
  EXPECT_EQ(Turns(&watch, &now, kTurn, false, 10), std::vector{kWaitNotePeriodUs});
}

// A long turn, such as one that loads rows, is not the fault of the disk.
TEST(LogWatchTest, ALongTurnIsNotWarnedOf) {
  LogWatch watch;
  TimeUs now = kUptime;
  EXPECT_TRUE(Turns(&watch, &now, kTurn, true, 0).empty());
  now += 6 * kWaitNotePeriodUs;
  EXPECT_TRUE(Turns(&watch, &now, kWaitNotePeriodUs, false, 0).empty());
}

// The process was stopped, or the machine slept, so the loop could not see the disk respond.
TEST(LogWatchTest, APauseOfTheProcessIsNotWarnedOf) {
  LogWatch watch;
  TimeUs now = kUptime;
  EXPECT_TRUE(Turns(&watch, &now, kWaitNotePeriodUs / 2, false, 0).empty());
  now += 100 * kWaitNotePeriodUs;
  EXPECT_TRUE(Turns(&watch, &now, kWaitNotePeriodUs, false, 0).empty());
  EXPECT_EQ(Turns(&watch, &now, kTurn, false, 0), std::vector{kWaitNotePeriodUs});
}

}  // namespace
}  // namespace tarn::server
