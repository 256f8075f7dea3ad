// Shows rules R4 to R6: tables whose lives count seconds get the time of day once a second, after it is logged, and
// expired rows are freed in slices.
#include "server/shard/row_timer.h"

#include <gtest/gtest.h>

#include "core/limits.h"
#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {
namespace {

constexpr TimeUs kSecond = 1'000'000;
constexpr TimeUs kUnixUs = 1'700'000'000 * kSecond;

class RowTimerTest : public PartTest {
 protected:
  void AddTableWithLife(const LifeSpec& life) {
    TableSpec spec = CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate);
    spec.life = life;
    AddTable(spec);
  }
  RowTimer timer_{[](TimeUs now) { return now + kUnixUs; }, &rows_, &outbox_};
};

TEST_F(RowTimerTest, HasNothingToDoWithoutLives) {
  AddTable(CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  timer_.OnTimer(5 * kSecond);
  EXPECT_FALSE(rows_.expiry().seconds());
  EXPECT_GT(timer_.NextTimer(), 1'000'000 * kSecond);
}

TEST_F(RowTimerTest, SetsTheTimeOnceASecond) {
  AddTableWithLife({.on = true, .expire_seconds = 100});
  timer_.SetTime(5 * kSecond);
  EXPECT_EQ(rows_.expiry().seconds(), 1'700'000'005u);
  EXPECT_EQ(timer_.NextTimer(), 6 * kSecond);
  timer_.OnTimer(6 * kSecond - 1);
  EXPECT_EQ(rows_.expiry().seconds(), 1'700'000'005u);
  timer_.OnTimer(6 * kSecond);
  EXPECT_EQ(rows_.expiry().seconds(), 1'700'000'006u);
}

TEST_F(RowTimerTest, FreesExpiredRowsInSlices) {
  AddTableWithLife({.on = true, .expire_clocks = 8, .sweep_clocks = 8});
  rows_.expiry().AdvanceClock(Clock(0));
  const std::vector<float> row = {1, 1};
  for (Key key = 0; key < 2 * limits::kSweepSliceRows; ++key) {
    const Section section{PartitionOfKey(key), 1, {}};
    ASSERT_TRUE(rows_.Apply(spec_.id, {&section, 1}, {&key, 1}, ValueCodec::kFp32,
                            reinterpret_cast<const std::byte*>(row.data()), Clock(0)));
  }
  rows_.expiry().AdvanceClock(Clock(100));
  ASSERT_TRUE(rows_.expiry().sweeping());
  int slices = 0;
  for (TimeUs now = 0; rows_.expiry().sweeping(); now = timer_.NextTimer(), ++slices) {
    timer_.OnTimer(now);
    timer_.OnTimer(now);  // messages come first
  }
  EXPECT_GT(slices, 1);
  EXPECT_EQ(rows_.counters().expired, 2 * limits::kSweepSliceRows);
}

}  // namespace
}  // namespace tarn::server
