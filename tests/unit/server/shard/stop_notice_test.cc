// Shows rule S2: a shard that stops by itself sends its first reason every second until the scheduler confirms it or a
// lease has passed, and at least three times, a second apart.
#include "server/shard/stop_notice.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

constexpr TimeUs kSecond = 1'000'000;
constexpr TimeUs kLease = 10 * kSecond;

class StopNoticeTest : public testing::Test {
 protected:
  void At(TimeUs now) { step_.Begin(now, &out_); }
  // How often the reason was sent since the last call.
  std::size_t TakeSent() {
    for (const Outgoing& outgoing : out_) {
      EXPECT_EQ(outgoing.to, kSchedulerPeer);
      EXPECT_TRUE(std::holds_alternative<Shutdown>(outgoing.message.body));
    }
    return std::exchange(out_, {}).size();
  }
  Outbox out_;
  ShardStep step_{ShardId(2)};
  StopNotice notice_{&step_};
};

TEST_F(StopNoticeTest, TheFirstReasonIsSentAtOnceAndKept) {
  At(kSecond);
  EXPECT_FALSE(notice_.stopped());
  notice_.Stop({ErrorCode::kIo, "no room"});
  EXPECT_EQ(std::get<Shutdown>(out_[0].message.body).reason, "shard 2: no room");
  notice_.Stop(ErrorCode::kCorrupt, "another");
  EXPECT_EQ(TakeSent(), 1u);
  EXPECT_TRUE(notice_.stopped());
  EXPECT_FALSE(notice_.ended());
  EXPECT_EQ(notice_.reason().code, ErrorCode::kIo);
}

TEST_F(StopNoticeTest, IsRepeatedEverySecondForALease) {
  At(kSecond);
  notice_.Stop({ErrorCode::kIo, "no room"});
  TakeSent();
  for (TimeUs now = kSecond; now < kSecond + kLease; now = notice_.NextTimer(kLease)) {
    At(now);
    notice_.OnTimer(kLease);
    EXPECT_FALSE(notice_.ended());
  }
  EXPECT_EQ(TakeSent(), 9u);
  At(kSecond + kLease);
  notice_.OnTimer(kLease);
  EXPECT_TRUE(notice_.ended());
  EXPECT_EQ(TakeSent(), 0u);
}

TEST_F(StopNoticeTest, AJumpInTimeDoesNotReplaceRepetitions) {
  At(kSecond);
  notice_.Stop({ErrorCode::kIo, "no room"});
  At(kSecond + 3 * kLease);
  notice_.OnTimer(kLease);
  EXPECT_FALSE(notice_.ended()) << "it was sent once in due time";
  TakeSent();
  for (int i = 0; i < 2; ++i) {
    At(notice_.NextTimer(kLease));
    notice_.OnTimer(kLease);
    EXPECT_FALSE(notice_.ended());
  }
  EXPECT_EQ(TakeSent(), 2u);
  notice_.OnTimer(kLease);
  EXPECT_TRUE(notice_.ended());
}

TEST_F(StopNoticeTest, AShutdownOfTheSchedulerIsConfirmedAndEndsTheShard) {
  At(kSecond);
  notice_.OnShutdown({ErrorCode::kOk, "done"});
  EXPECT_TRUE(notice_.ended());
  EXPECT_EQ(notice_.reason().reason, "done");
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(std::get<Shutdown>(out_[0].message.body).code, ErrorCode::kOk);
}

TEST_F(StopNoticeTest, AShardThatHasStoppedKeepsItsReason) {
  At(kSecond);
  notice_.Stop({ErrorCode::kIo, "no room"});
  notice_.OnShutdown({ErrorCode::kOk, "done"});
  EXPECT_TRUE(notice_.ended());
  EXPECT_EQ(notice_.reason().code, ErrorCode::kIo);
}

TEST_F(StopNoticeTest, KeepsTheFirstErrorOfAStepUntilItIsTaken) {
  EXPECT_TRUE(notice_.Check({}));
  EXPECT_FALSE(notice_.step_failed());
  EXPECT_FALSE(notice_.Check(Fail(ErrorCode::kIo, "first")));
  EXPECT_FALSE(notice_.Check(Fail(ErrorCode::kCorrupt, "second")));
  EXPECT_TRUE(notice_.step_failed());
  EXPECT_EQ(notice_.TakeFailure().error().message, "first");
  EXPECT_FALSE(notice_.step_failed());
  EXPECT_FALSE(notice_.stopped()) << "who took the error stops the shard";
}

}  // namespace
}  // namespace tarn::server
