// Shows that frames become messages, alone or bundled, and that invalid frames are counted and answered once, if the
// peer connected to us.
#include "net/zmq/intake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/limits.h"
#include "net/frame.h"
#include "tests/unit/net/zmq/messages.h"

namespace tarn::net {
namespace {

const Peer kAccepted(kFirstAcceptedPeer), kShard = ShardPeer(ShardId(0));

FrameView ViewOf(const std::string& text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

std::string Bytes(const Message& message) {
  const Buffer frame = (*Encode(message))[0];
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

class IntakeTest : public ::testing::Test {
 protected:
  void Accept(Peer from, const std::string& bytes) {
    const FrameView frame = ViewOf(bytes);
    intake_.Accept(from, {&frame, 1}, nullptr, &got_);
  }
  TransportCounters Counters() const {
    TransportCounters counters;
    intake_.AddTo(&counters);
    return counters;
  }
  ErrorReply AnswerAt(std::size_t i) const {
    const auto message = Decode(std::span<const Buffer>(answers_.at(i).second));
    return message ? std::get<ErrorReply>(message->body) : ErrorReply{};
  }

  std::vector<std::pair<Peer, Frames>> answers_;
  Intake intake_{[this](Peer to, Frames answer) { answers_.emplace_back(to, std::move(answer)); }};
  std::vector<Received> got_;
};

TEST_F(IntakeTest, AcceptsMessagesAloneAndInABundle) {
  Accept(kShard, Bytes(NumberedTick(1)));
  BundleWriter writer;
  for (const std::uint64_t n : {2, 3}) {
    const std::string message = Bytes(NumberedTick(n));
    std::memcpy(writer.Place(message.size()), message.data(), message.size());
  }
  const FrameView bundle = writer.Finish();
  intake_.Accept(kAccepted, {&bundle, 1}, nullptr, &got_);
  ASSERT_EQ(got_.size(), 3u);
  for (std::uint64_t n = 1; n <= 3; ++n) EXPECT_EQ(TickOf(got_[n - 1]), n);
  EXPECT_EQ(got_[0].from, kShard);
  EXPECT_EQ(got_[1].from, kAccepted);
  EXPECT_EQ(Counters().received_messages, 3u);
  EXPECT_EQ(Counters().received_bytes, Bytes(NumberedTick(1)).size() + bundle.size);
  EXPECT_TRUE(answers_.empty());
}

TEST_F(IntakeTest, GarbageIsCountedAndAnsweredToAnAcceptedPeer) {
  Accept(kAccepted, "hello");
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].first, kAccepted);
  EXPECT_EQ(AnswerAt(0).code, ErrorCode::kMalformed);
  EXPECT_EQ(AnswerAt(0).message, "prefix: 5 bytes, expected 16");
  Accept(kShard, "hello");
  EXPECT_EQ(answers_.size(), 1u);
  EXPECT_EQ(Counters().refused_malformed, 2u);
  EXPECT_TRUE(got_.empty());
}

// A message of another version is counted. An accepted peer is answered; if we connected to the peer, our node stops.
TEST_F(IntakeTest, AnotherVersion) {
  std::string other = Bytes(NumberedTick(1));
  other[4] = limits::kProtocolVersion + 1;
  Accept(kAccepted, other);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(AnswerAt(0).code, ErrorCode::kWrongJob);
  EXPECT_TRUE(got_.empty());
  Accept(kShard, other);
  EXPECT_EQ(answers_.size(), 1u);
  ASSERT_EQ(got_.size(), 1u);
  EXPECT_EQ(std::get<Shutdown>(got_[0].message.body).code, ErrorCode::kWrongJob);
  EXPECT_EQ(Counters().refused_version, 2u);
}

TEST_F(IntakeTest, ATooLargeMessageIsCountedUnlessItHasAnotherVersion) {
  std::string bytes = Bytes(NumberedTick(1));
  const FrameView frame = ViewOf(bytes);
  intake_.RefuseTooLarge(kAccepted, {&frame, 1}, &got_);
  intake_.RefuseTooLarge(kAccepted, {}, &got_);
  EXPECT_EQ(Counters().refused_too_large, 2u);
  bytes[4] = limits::kProtocolVersion + 1;
  intake_.RefuseTooLarge(kAccepted, {&frame, 1}, &got_);
  EXPECT_EQ(Counters().refused_too_large, 2u);
  EXPECT_EQ(Counters().refused_version, 1u);
  intake_.CountEnded(3, 1 << 20);
  EXPECT_EQ(Counters().refused_too_large, 5u);
  EXPECT_TRUE(got_.empty());
}

}  // namespace
}  // namespace tarn::net
