// Shows that bundles keep the order to each peer, end at their limits of messages and of bytes and not before, and are
// counted by their messages, also where they wait.
#include "net/bundles.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tarn::net {
namespace {

struct Sent {
  Peer to;
  Frames frames;
};

Frames Packed(std::uint64_t n) {
  Message message;
  message.body = Tick{.clock = Clock(n)};
  return *Encode(message);
}

// A packed message of `bytes` in all.
Frames PackedOf(std::size_t bytes) {
  Message message;
  message.body = PullReply{.request = RequestId(1), .count = 1};
  message.values = Buffer::Allocate(4);
  const std::size_t least = BytesOf(*Encode(message));
  message.values = Buffer::Allocate(4 + bytes - least);
  Frames frames = *Encode(message);
  EXPECT_EQ(frames.size(), 1u);
  EXPECT_EQ(BytesOf(frames), bytes);
  return frames;
}

Frames Split() {
  const std::vector<std::byte> zeros(64);
  return {Buffer::Copy(zeros.data(), 64), Buffer::Copy(zeros.data(), 8), Buffer::Copy(zeros.data(), 8)};
}

class BundlesTest : public ::testing::Test {
 protected:
  void Add(Peer to, Frames frames) { bundles_.Add(to, std::move(frames), send_); }
  void Flush() { bundles_.Flush(send_); }

  std::vector<Sent> sent_;
  std::function<void(Peer, Frames)> send_ = [this](Peer to, Frames f) { sent_.push_back({to, std::move(f)}); };
  Bundles bundles_;
};

TEST_F(BundlesTest, SmallOnesWaitForTheEndAndLargeOnesPassBehindThem) {
  Add(Peer(1), Packed(1));
  Add(Peer(2), Packed(2));
  Add(Peer(1), Packed(3));
  EXPECT_TRUE(sent_.empty());
  Add(Peer(1), Split());
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].to, Peer(1));
  EXPECT_EQ(sent_[0].frames.size(), 2u);
  EXPECT_EQ(sent_[1].frames[0].size(), 64u);
  Add(Peer(1), Packed(4));
  Flush();
  ASSERT_EQ(sent_.size(), 4u);
  EXPECT_EQ(sent_[2].to, Peer(1));
  EXPECT_EQ(sent_[3].to, Peer(2));
  Flush();
  EXPECT_EQ(sent_.size(), 4u);
}

TEST_F(BundlesTest, EndAtTheLimitOfMessages) {
  for (std::size_t i = 0; i < limits::kBundleMessagesMax; ++i) Add(Peer(1), Packed(i));
  EXPECT_TRUE(sent_.empty());
  Add(Peer(1), Packed(99));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].frames.size(), limits::kBundleMessagesMax);
  EXPECT_EQ(MessagesIn(sent_[0].frames), limits::kBundleMessagesMax);
}

TEST_F(BundlesTest, EndAtTheLimitOfBytes) {
  const std::size_t half = limits::kBundleBytesMax / 2;
  Add(Peer(1), PackedOf(half));
  Add(Peer(1), PackedOf(half));
  EXPECT_TRUE(sent_.empty());
  Add(Peer(1), Packed(1));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(BytesOf(sent_[0].frames), limits::kBundleBytesMax);
  Flush();
  EXPECT_EQ(sent_.size(), 2u);
}

TEST_F(BundlesTest, ManyPeers) {
  for (std::uint64_t peer = 0; peer < 1000; ++peer) Add(Peer(peer), Packed(peer));
  Flush();
  ASSERT_EQ(sent_.size(), 1000u);
  for (std::uint64_t peer = 0; peer < 1000; ++peer) EXPECT_EQ(sent_[peer].to, Peer(peer));
}

TEST_F(BundlesTest, ABacklogThatIsDroppedCountsMessages) {
  Backlog backlog(1 << 20);
  for (int i = 0; i < 5; ++i) Add(Peer(1), Packed(1));
  Flush();
  ASSERT_TRUE(backlog.Push(Peer(1), sent_[0].frames));
  ASSERT_TRUE(backlog.Push(Peer(1), Split()));
  EXPECT_EQ(backlog.Drop(Peer(1)), 6u);
  EXPECT_EQ(backlog.bytes(), 0u);
}

}  // namespace
}  // namespace tarn::net
