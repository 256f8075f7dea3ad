// Shows that bundles keep the order of messages to each peer, that they are full exactly at their limits of messages
// and bytes, that a waiting bundle counts as its messages, and that an invalid bundle is rejected with a reason.
#include "net/bundles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "net/backlog.h"

namespace tarn::net {
namespace {

using ::testing::HasSubstr;

Message Numbered(std::uint64_t n) {
  Message message;
  message.body = Tick{.clock = Clock(n)};
  return message;
}

// A reply with `bytes` of values.
Message ReplyWith(std::uint32_t count, std::size_t bytes) {
  ReplyPart part{.count = count, .values = Buffer::Allocate(bytes)};
  std::memset(part.values.data(), 7, bytes);
  Message message;
  message.body = PullReply{.request = RequestId(1), .tables = {std::move(part)}};
  return message;
}

// A reply whose packed frame has `bytes` bytes.
Message ReplyOf(std::size_t bytes) { return ReplyWith(1, 4 + bytes - BytesOf(*Encode(ReplyWith(1, 4)))); }

Message Large() { return ReplyWith(16, 4 * limits::kSmallMessageBytes); }

std::uint64_t NumberOf(const FrameView& frame) {
  const auto message = Decode({&frame, 1});
  return message ? std::get<Tick>(message->body).clock.value : ~std::uint64_t{0};
}

struct Sent {
  Peer to;
  std::vector<Buffer> frames;
  FrameView first() const { return {frames[0].data(), frames[0].size()}; }
};

class BundlesTest : public ::testing::Test {
 protected:
  void Add(Peer to, const Message& message) {
    ASSERT_TRUE(encoder_.Begin(message));
    bundles_.Add(to, encoder_, send_);
  }
  void Flush() { bundles_.Flush(send_); }

  struct Keep {
    std::vector<Sent>* sent;
    void operator()(const LaneId& to, std::vector<Buffer> frames) const {
      sent->push_back({to.peer, std::move(frames)});
    }
    void operator()(const LaneId& to, const FrameView& frame) const {
      sent->push_back({to.peer, {Buffer::Copy(frame.data, frame.size)}});
    }
  };

  std::vector<Sent> sent_;
  Keep send_{&sent_};
  Encoder encoder_;
  Bundles bundles_;
};

TEST_F(BundlesTest, SmallMessagesWaitForFlushAndLargeOnesFollowThem) {
  Add(Peer(1), Numbered(1));
  Add(Peer(2), Numbered(2));
  Add(Peer(1), Numbered(3));
  EXPECT_TRUE(sent_.empty());
  Add(Peer(1), Large());
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].to, Peer(1));
  EXPECT_EQ(MessagesIn(sent_[0].first()), 2u);
  EXPECT_EQ(sent_[1].frames.size(), limits::kFramesMax);
  Add(Peer(1), Numbered(4));
  Flush();
  ASSERT_EQ(sent_.size(), 4u);
  EXPECT_EQ(sent_[2].to, Peer(1));
  EXPECT_EQ(sent_[3].to, Peer(2));
  Flush();
  EXPECT_EQ(sent_.size(), 4u);
}

TEST_F(BundlesTest, ASingleMessageIsNotBundled) {
  Add(Peer(1), Numbered(5));
  Flush();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_FALSE(IsBundle(sent_[0].first()));
  EXPECT_EQ(NumberOf(sent_[0].first()), 5u);
  EXPECT_EQ(MessagesIn(sent_[0].first()), 1u);
}

TEST_F(BundlesTest, EachMessageIsDecoded) {
  SplitMix random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<Buffer>> expected;
    for (std::uint64_t n = 2 + random.Below(20); n > 0; --n) {
      const Message message = random.Chance(0.5) ? Numbered(random.Next()) : ReplyOf(240 + 4 * random.Below(75));
      Add(Peer(1), message);
      expected.push_back(*Encode(message));
    }
    sent_.clear();
    Flush();
    ASSERT_EQ(sent_.size(), 1u);
    const auto bundle = SplitBundle(sent_[0].first());
    ASSERT_TRUE(bundle) << ToString(bundle.error());
    ASSERT_EQ(bundle->count, expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(bundle->frames[i].size, expected[i][0].size());
      EXPECT_EQ(std::memcmp(bundle->frames[i].data, expected[i][0].data(), expected[i][0].size()), 0);
    }
  }
}

TEST_F(BundlesTest, AreSentAtTheLimitOfMessages) {
  for (std::size_t i = 0; i < limits::kBundleMessagesMax; ++i) Add(Peer(1), Numbered(i));
  EXPECT_TRUE(sent_.empty());
  Add(Peer(1), Numbered(99));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(MessagesIn(sent_[0].first()), limits::kBundleMessagesMax);
  const auto bundle = SplitBundle(sent_[0].first());
  ASSERT_TRUE(bundle);
  EXPECT_EQ(NumberOf(bundle->frames[limits::kBundleMessagesMax - 1]), limits::kBundleMessagesMax - 1);
}

TEST_F(BundlesTest, AreSentAtTheLimitOfBytes) {
  const std::size_t half = (limits::kBundleBytesMax - sizeof(Prefix)) / 2 - 8;
  Add(Peer(1), ReplyOf(half));
  Add(Peer(1), ReplyOf(half));
  EXPECT_TRUE(sent_.empty());
  Add(Peer(1), Numbered(1));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].first().size, limits::kBundleBytesMax);
  Flush();
  EXPECT_EQ(sent_.size(), 2u);
}

TEST_F(BundlesTest, ManyPeers) {
  for (std::uint64_t peer = 0; peer < 1000; ++peer) Add(Peer(peer), Numbered(peer));
  Flush();
  ASSERT_EQ(sent_.size(), 1000u);
  for (std::uint64_t peer = 0; peer < 1000; ++peer) {
    EXPECT_EQ(sent_[peer].to, Peer(peer));
    EXPECT_EQ(NumberOf(sent_[peer].first()), peer);
  }
}

// Like the pushes of several tables in one step, each with a part for every shard.
TEST_F(BundlesTest, SeveralMessagesToEachOfManyPeersAreOneFrameEach) {
  for (std::uint64_t n = 0; n < 3; ++n)
    for (std::uint64_t peer = 0; peer < 1000; ++peer) Add(Peer(peer), Numbered(n));
  EXPECT_TRUE(sent_.empty());
  Flush();
  ASSERT_EQ(sent_.size(), 1000u);
  for (std::uint64_t peer = 0; peer < 1000; ++peer) {
    EXPECT_EQ(sent_[peer].to, Peer(peer));
    EXPECT_EQ(MessagesIn(sent_[peer].first()), 3u);
  }
}

TEST_F(BundlesTest, MorePeersThanBuffersGetAllMessagesInOrder) {
  for (std::uint64_t peer = 0; peer < 1024; ++peer) Add(Peer(peer), Numbered(0));
  EXPECT_TRUE(sent_.empty());
  Add(Peer(1024), Numbered(0));
  EXPECT_EQ(sent_.size(), 1024u) << "a buffer for each lane is bounded memory";
  for (std::uint64_t peer = 1025; peer < 1500; ++peer) Add(Peer(peer), Numbered(0));
  for (std::uint64_t peer = 0; peer < 1500; ++peer) Add(Peer(peer), Numbered(1));
  Flush();
  std::vector<std::vector<std::uint64_t>> got(1500);
  for (const Sent& sent : sent_) got[sent.to.value].push_back(NumberOf(sent.first()));
  for (const auto& each : got) EXPECT_EQ(each, (std::vector<std::uint64_t>{0, 1}));
}

TEST_F(BundlesTest, ABacklogThatIsDroppedCountsMessages) {
  Backlog backlog(1 << 20);
  for (int i = 0; i < 5; ++i) Add(Peer(1), Numbered(1));
  Add(Peer(1), Large());
  ASSERT_EQ(sent_.size(), 2u);
  for (Sent& sent : sent_) ASSERT_TRUE(backlog.Push(Peer(1), sent.frames));
  EXPECT_EQ(backlog.Drop(Peer(1)), 6u);
  EXPECT_EQ(backlog.bytes(), 0u);
}

class BrokenBundleTest : public BundlesTest {
 protected:
  void SetUp() override {
    for (std::uint64_t n = 1; n <= 3; ++n) Add(Peer(1), Numbered(n));
    Flush();
    bundle_ = sent_[0].frames[0];
  }
  std::string Refusal(std::size_t size) {
    const auto split = SplitBundle({bundle_.data(), size});
    return split ? "" : ToString(split.error());
  }
  std::string Refusal() { return Refusal(bundle_.size()); }
  void Put(std::size_t at, std::uint32_t word) { std::memcpy(bundle_.data() + at, &word, sizeof(word)); }

  Buffer bundle_;
};

TEST_F(BrokenBundleTest, IsRefusedWithAReason) {
  const std::uint32_t size = bundle_.as<std::uint32_t>()[4];
  EXPECT_EQ(Refusal(), "");
  EXPECT_THAT(Refusal(bundle_.size() - 8), HasSubstr("the rest of the bundle"));
  Put(16, size + 1);  // makes the padding too large or not zero
  EXPECT_THAT(Refusal(), HasSubstr("malformed"));
  Put(16, 0xfffffff9);
  EXPECT_THAT(Refusal(), HasSubstr("bundle: message 0 of 3 has 4294967289 bytes"));
  Put(16, 0);
  EXPECT_THAT(Refusal(), HasSubstr("bundle: message 0 of 3 has 0 bytes"));
  Put(16, size);
  Put(20, 1);
  EXPECT_THAT(Refusal(), HasSubstr("0x1 behind that"));
  Put(20, 0);
  Put(12, 2);
  EXPECT_THAT(Refusal(), HasSubstr("bytes behind 2 messages"));
  Put(12, 4);
  EXPECT_THAT(Refusal(), HasSubstr("bundle: message 3 of 4"));
  Put(12, limits::kBundleMessagesMax + 1);
  EXPECT_THAT(Refusal(), HasSubstr("at most 64"));
  Put(12, 0);
  EXPECT_THAT(Refusal(), HasSubstr("bundle"));
}

TEST_F(BrokenBundleTest, TooLargeIsRefused) {
  std::vector<std::byte> large(limits::kBundleBytesMax + 8);
  std::memcpy(large.data(), bundle_.data(), bundle_.size());
  const auto rest = static_cast<std::uint32_t>(large.size() - sizeof(Prefix));
  std::memcpy(large.data() + 8, &rest, sizeof(rest));
  const auto split = SplitBundle({large.data(), large.size()});
  ASSERT_FALSE(split);
  EXPECT_EQ(split.error().code, ErrorCode::kTooLarge);
}

// With any damage, the decoded messages lie within the frame.
TEST_F(BrokenBundleTest, RandomDamageIsDecodedWithinTheFrame) {
  SplitMix random(3);
  const Buffer whole = Buffer::Copy(bundle_.data(), bundle_.size());
  for (int round = 0; round < 100'000; ++round) {
    std::memcpy(bundle_.data(), whole.data(), whole.size());
    for (std::uint64_t n = 1 + random.Below(4); n > 0; --n)
      bundle_.data()[random.Below(bundle_.size())] = static_cast<std::byte>(random.Next());
    const std::size_t size = random.Chance(0.5) ? bundle_.size() : random.Below(bundle_.size() + 1);
    const auto split = SplitBundle({bundle_.data(), size});
    if (!split) continue;
    for (const FrameView& frame : split->views()) {
      ASSERT_GE(frame.data, bundle_.data());
      ASSERT_LE(frame.data + frame.size, bundle_.data() + size);
      (void)Decode({&frame, 1});
    }
  }
}

}  // namespace
}  // namespace tarn::net
