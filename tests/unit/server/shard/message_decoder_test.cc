// Shows rules W2, W3, W5 in a shard: coded keys, held lists and top-k values are decoded to keys and rows; invalid
// ones, and those of senders that are not served, are left unchanged.
#include "server/shard/message_decoder.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/key_delta.h"
#include "kernels/sparse_values.h"
#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {
namespace {

class MessageDecoderTest : public PartTest {
 protected:
  MessageDecoderTest() { AddTable(CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate)); }
  MessageDecoder decoder_{&rows_, &senders_, &lists_};
};

TEST_F(MessageDecoderTest, DeltaCodedKeysBecomeKeys) {
  std::vector<Key> keys(100);
  std::iota(keys.begin(), keys.end(), 1000);
  std::vector<std::byte> coded(DeltaBytesMax(keys.size()));
  coded.resize(kernels::EncodeKeys(keys, coded.data()));
  Message message = PullOf(kFirstWorker, 7, 0, 1);
  KeyList& list = PartOf<Pull>(message).keys;
  list.codec = KeyCodec::kDelta;
  list.count = 100;
  list.frame = Buffer::CopyOf(std::span<const std::byte>(coded));
  Message stranger = message;
  stranger.sender.incarnation = Incarnation(99);
  decoder_.Decode(&message);
  EXPECT_EQ(list.codec, KeyCodec::kRaw);
  EXPECT_TRUE(std::ranges::equal(list.frame.as<Key>(), keys));
  decoder_.Decode(&stranger);
  EXPECT_EQ(PartOf<Pull>(stranger).keys.codec, KeyCodec::kDelta) << "it will be refused";
}

TEST_F(MessageDecoderTest, AHeldListBecomesItsKeys) {
  const Message first = PullOf(kFirstWorker, 7, 0, 1);
  KeyList held = PartOf<Pull>(first).keys;
  held.list = 5;
  lists_.Keep(kFirstWorker, held);
  const auto named = [&](Incarnation worker, std::uint64_t number, std::uint32_t count) {
    Message message = PullOf(worker, 7, 0, 2);
    KeyList& keys = PartOf<Pull>(message).keys;
    keys = {.codec = KeyCodec::kHeld, .count = count, .sections = keys.sections, .list = number};
    decoder_.Decode(&message);
    return std::pair(keys.codec, keys.frame.size());
  };
  EXPECT_EQ(named(kFirstWorker, 5, 1), std::pair(KeyCodec::kRaw, sizeof(Key)));
  EXPECT_EQ(named(kFirstWorker, 6, 1).first, KeyCodec::kHeld) << "not held";
  EXPECT_EQ(named(kFirstWorker, 5, 2).first, KeyCodec::kHeld) << "another number of keys";
  EXPECT_EQ(named(kSecondWorker, 5, 1).first, KeyCodec::kHeld) << "another worker's";
}

TEST_F(MessageDecoderTest, TopKValuesBecomeRows) {
  const float rows[] = {0, 8};
  std::vector<std::byte> coded(kernels::SparseBytes(2, rows));
  kernels::EncodeSparse(2, rows, coded.data());
  Message message = PushOf(kFirstWorker, 7, 1, 0);
  PushPart& push = PartOf<Push>(message);
  push.codec = ValueCodec::kTopK;
  push.values = Buffer::CopyOf(std::span<const std::byte>(coded));
  decoder_.Decode(&message);
  EXPECT_EQ(push.codec, ValueCodec::kFp32);
  EXPECT_EQ(push.values.as<float>()[1], 8.0f);
}

TEST_F(MessageDecoderTest, OnlyBytesThatTheSenderCanChangeAreCopied) {
  Message message = PushOf(kFirstWorker, 7, 1, 0);
  PushPart& push = PartOf<Push>(message);
  const std::byte* own = push.keys.frame.data();
  std::vector<float> shared = {1, 1};
  const auto lend = [&] {
    return Buffer::Lend(reinterpret_cast<std::byte*>(shared.data()), 8, std::make_shared<int>());
  };
  push.values = lend();
  MessageDecoder::TakeOver(&message, false);
  EXPECT_EQ(push.keys.frame.data(), own) << "nobody else can write to it";
  EXPECT_TRUE(push.values.lent());
  MessageDecoder::TakeOver(&message, true);
  EXPECT_FALSE(push.values.lent());
  shared[0] = 9;
  EXPECT_EQ(push.values.as<float>()[0], 1.0f);
}

}  // namespace
}  // namespace tarn::server
