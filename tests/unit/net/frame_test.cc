// Shows that Decode(Encode(m)) is m for random messages of every body, at any alignment and split as well as packed;
// that large payloads are shared, not copied; and that Encode refuses what Decode would refuse.
#include "net/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/limits.h"
#include "tests/unit/net/fields.h"
#include "tests/unit/net/random_message.h"

namespace tarn::net {
namespace {

using testing::Equal;
using testing::RandomMessage;

class EveryBody : public ::testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(Bodies, EveryBody, ::testing::Range<std::size_t>(0, std::variant_size_v<Body>),
                         [](const auto& body) {
                           SplitMix random(1);
                           return std::string(BodyName(RandomMessage(&random, body.param, 1).body));
                         });

TEST_P(EveryBody, ComesBackAsItWas) {
  SplitMix random(GetParam() + 100);
  for (int i = 0; i < 200; ++i) {
    const Message message = RandomMessage(&random, GetParam(), i < 150 ? 8 : 60);
    const auto frames = Encode(message);
    ASSERT_TRUE(frames) << ToString(frames.error());
    const auto back = Decode(std::span<const Buffer>(*frames));
    ASSERT_TRUE(back) << ToString(back.error());
    EXPECT_TRUE(Equal(message, *back)) << BodyName(message.body) << " " << i;
  }
}

TEST_P(EveryBody, ComesBackFromAnyAlignment) {
  SplitMix random(GetParam() + 200);
  for (std::size_t shift = 0; shift < 16; ++shift) {
    const Message message = RandomMessage(&random, GetParam(), shift < 8 ? 5 : 50);
    const auto frames = Encode(message);
    ASSERT_TRUE(frames) << ToString(frames.error());
    std::vector<Buffer> shifted;
    std::vector<FrameView> views;
    for (const Buffer& frame : *frames) {
      shifted.push_back(Buffer::Allocate(frame.size() + 16));
      if (!frame.empty()) std::memcpy(shifted.back().data() + shift, frame.data(), frame.size());
      views.push_back({shifted.back().data() + shift, frame.size()});
    }
    const auto back = Decode(views);
    ASSERT_TRUE(back) << ToString(back.error());
    EXPECT_TRUE(Equal(message, *back));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(back->values.data()) % Buffer::kAlignment, 0u);
  }
}

// Independent of earlier messages, also of one that it rejected half-way.
TEST(Encoder, ForgetsWhatCameBefore) {
  SplitMix random(300);
  Encoder encoder;
  Message bad;
  bad.body = Welcome{};
  std::get<Welcome>(bad.body).view.tables.resize(1);
  std::get<Welcome>(bad.body).view.tables[0].name = std::string(limits::kNameBytesMax + 1, 'x');
  for (int i = 0; i < 2'000; ++i) {
    const Message message = RandomMessage(&random, random.Below(std::variant_size_v<Body>), random.Below(200));
    if (i % 3 == 0) {
      ASSERT_FALSE(encoder.Begin(bad));
    }
    ASSERT_TRUE(encoder.Begin(message));
    const auto frames = *Encode(message);
    ASSERT_EQ(encoder.packed_bytes(), frames.size() == 1 ? frames[0].size() : 0);
    Buffer again = frames.size() == 1 ? Buffer::Allocate(encoder.packed_bytes()) : encoder.Split()[0];
    if (frames.size() == 1) encoder.Pack(again.data());
    ASSERT_EQ(again.size(), frames[0].size());
    ASSERT_EQ(std::memcmp(again.data(), frames[0].data(), again.size()), 0);
  }
}

// A default message of every body can be encoded: irrelevant fields need not be set.
TEST_P(EveryBody, DefaultComesBack) {
  SplitMix random(1);
  const Message message = RandomMessage(&random, GetParam(), 0);
  const auto frames = Encode(message);
  ASSERT_TRUE(frames) << ToString(frames.error());
  ASSERT_EQ(frames->size(), 1u);
  const auto back = Decode(std::span<const Buffer>(*frames));
  ASSERT_TRUE(back) << ToString(back.error());
  EXPECT_TRUE(Equal(message, *back));
}

// A reply to a pull of `count` rows of one float.
Message Reply(std::uint32_t count) {
  Message message;
  message.body = PullReply{.request = RequestId(7), .table = TableId(1), .min_clock = Clock(3), .count = count};
  message.values = Buffer::Allocate(count * sizeof(float));
  std::memset(message.values.data(), 1, message.values.size());
  return message;
}

TEST(Frame, IsOneUpToTheLimitAndThreeBeyond) {
  const std::size_t overhead = (*Encode(Reply(1)))[0].size() - sizeof(float);
  const auto at = static_cast<std::uint32_t>((limits::kSmallMessageBytes - overhead) / sizeof(float));
  const auto packed = Encode(Reply(at));
  ASSERT_TRUE(packed);
  ASSERT_EQ(packed->size(), 1u);
  EXPECT_EQ((*packed)[0].size(), limits::kSmallMessageBytes);
  const auto split = Encode(Reply(at + 1));
  ASSERT_TRUE(split);
  EXPECT_EQ(split->size(), 3u);
  for (const auto& frames : {*packed, *split}) EXPECT_TRUE(Decode(std::span<const Buffer>(frames)));
}

TEST(Frame, SharesLargePayloads) {
  Message message;
  message.body = Push{.keys = {.count = 1024, .sections = {{PartitionId(3), 1024, Sequence(1)}}}};
  message.keys = Buffer::Allocate(1024 * sizeof(Key));
  message.values = Buffer::Allocate(1024 * 16 * sizeof(float));
  std::memset(message.keys.data(), 0, message.keys.size());
  std::memset(message.values.data(), 0, message.values.size());
  const auto frames = Encode(message);
  ASSERT_TRUE(frames) << ToString(frames.error());
  ASSERT_EQ(frames->size(), 3u);
  EXPECT_EQ((*frames)[1].data(), message.keys.data());
  EXPECT_EQ((*frames)[2].data(), message.values.data());
}

// A push of two rows of three floats in two sections.
Message PushOfTwo() {
  Message message;
  Push push{.keys = {.count = 2, .sections = {{PartitionId(3), 1, Sequence(1)}, {PartitionId(4), 1, Sequence(1)}}}};
  push.keys.sections[0].version = Version(7);
  message.body = std::move(push);
  message.keys = Buffer::Allocate(2 * sizeof(Key));
  std::memset(message.keys.data(), 0, message.keys.size());
  message.values = Buffer::Allocate(2 * 3 * sizeof(float));
  std::memset(message.values.data(), 0, message.values.size());
  return message;
}

TEST(Frame, VersionsTravelIfOneIsKnown) {
  Message message = PushOfTwo();
  const auto known = Encode(message);
  ASSERT_TRUE(known);
  const auto back = Decode(std::span<const Buffer>(*known));
  ASSERT_TRUE(back) << ToString(back.error());
  const std::vector<Section>& sections = std::get<Push>(back->body).keys.sections;
  EXPECT_EQ(sections[0].version, Version(7));
  EXPECT_EQ(sections[1].version, kNoVersion);
  std::get<Push>(message.body).keys.sections[0].version = kNoVersion;
  EXPECT_LT((*Encode(message))[0].size(), (*known)[0].size());
}

TEST(Frame, PulledRowsAreBehindTheGradients) {
  Message message = PushOfTwo();
  Push& push = std::get<Push>(message.body);
  push.pulled = ValueCodec::kBf16;
  const auto decoded = [&] {
    const auto frames = Encode(message);
    if (!frames) return ToString(frames.error());
    const auto back = Decode(std::span<const Buffer>(*frames));
    return back ? std::string() : ToString(back.error());
  };
  EXPECT_EQ(decoded(), "") << "rows of two floats and two bf16";
  message.values = Buffer::Allocate(2 * 3 * (sizeof(float) + 2));
  std::memset(message.values.data(), 0, message.values.size());
  EXPECT_EQ(decoded(), "");
  message.values = Buffer::Allocate(2 * 3 * (sizeof(float) + 2) + 2);
  EXPECT_NE(decoded().find("values frame: 38 bytes, expected 2 rows of 1 to 4096 values, 6 to 24576 bytes each"),
            std::string::npos);
  push.pulled = ValueCodec::kTopK;
  EXPECT_NE(decoded().find("Push.pulled: topk rows with fp32 gradients"), std::string::npos);
}

TEST(Frame, AnAssignmentHasWholeRowsAndADeletionNone) {
  Message message = PushOfTwo();
  Push& push = std::get<Push>(message.body);
  const auto decoded = [&] {
    const auto frames = Encode(message);
    if (!frames) return ToString(frames.error());
    const auto back = Decode(std::span<const Buffer>(*frames));
    if (!back) return ToString(back.error());
    EXPECT_EQ(std::get<Push>(back->body).action, push.action);
    return std::string();
  };
  push.action = PushAction::kAssign;
  EXPECT_EQ(decoded(), "");
  push.action = PushAction::kDelete;
  EXPECT_NE(decoded().find("values frame"), std::string::npos) << "with values";
  message.values = {};
  EXPECT_EQ(decoded(), "");
  push.action = PushAction::kAssign;
  EXPECT_NE(decoded().find("values frame: 0 bytes"), std::string::npos);
  push.pulled = ValueCodec::kFp32;
  EXPECT_NE(decoded().find("codec: fp32, with pulled rows in a push that assigns or deletes rows"), std::string::npos);
}

// The wire form of the prefix is fixed.
TEST(Frame, PrefixIsAsDocumented) {
  Message message;
  message.body = Barrier{.number = 5};
  const Buffer frame = (*Encode(message))[0];
  Prefix prefix;
  std::memcpy(&prefix, frame.data(), sizeof(prefix));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.data()), 4), "TARN");
  EXPECT_EQ(prefix.version, limits::kProtocolVersion);
  EXPECT_EQ(prefix.kind, 2);
  EXPECT_EQ(prefix.reserved, 0);
  EXPECT_EQ(prefix.keys_bytes, 0u);
  EXPECT_EQ(sizeof(Prefix) + (prefix.header_bytes + 7) / 8 * 8, frame.size());
}

TEST(Frame, CutsLongTextsAtACharacter) {
  Message message;
  const std::string euros = "\xe2\x82\xac";  // three bytes: the limit of 4096 lies within the 1366th
  std::string text;
  while (text.size() <= limits::kTextBytesMax) text += euros;
  message.body = ErrorReply{.code = ErrorCode::kIo, .message = text};
  const auto frames = Encode(message);
  ASSERT_TRUE(frames);
  const auto back = Decode(std::span<const Buffer>(*frames));
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<ErrorReply>(back->body).message, text.substr(0, limits::kTextBytesMax / 3 * 3));
}

// The error of Encode for a body at or over its limit.
std::string EncodeError(Body body) {
  Message message;
  message.body = std::move(body);
  const auto frames = Encode(message);
  if (!frames) return ToString(frames.error());
  const auto back = Decode(std::span<const Buffer>(*frames));
  return back ? "" : "decode: " + ToString(back.error());
}

TEST(Limits, HoldAtTheLimitAndRefuseOnePast) {
  const auto names = [](std::size_t n) { return std::string(n, 'x'); };
  EXPECT_EQ(EncodeError(Join{.endpoint = names(limits::kEndpointBytesMax)}), "");
  EXPECT_EQ(EncodeError(Join{.endpoint = names(limits::kEndpointBytesMax + 1)}),
            "too-large: Join.endpoint: 257 bytes, expected at most 256");
  EXPECT_EQ(EncodeError(Join{.http = names(limits::kEndpointBytesMax)}), "");
  EXPECT_NE(EncodeError(Join{.http = names(limits::kEndpointBytesMax + 1)}), "");
  EXPECT_EQ(EncodeError(Welcome{.job_text = names(limits::kJobBytesMax)}), "");
  EXPECT_NE(EncodeError(Welcome{.job_text = names(limits::kJobBytesMax + 1)}), "");
  EXPECT_EQ(EncodeError(Heartbeat{.counters = std::vector<Counter>(limits::kCountersMax)}), "");
  EXPECT_NE(EncodeError(Heartbeat{.counters = std::vector<Counter>(limits::kCountersMax + 1)}), "");
  EXPECT_EQ(EncodeError(Heartbeat{.staleness = std::vector<std::uint64_t>(limits::kStalenessBucketsMax)}), "");
  EXPECT_EQ(EncodeError(Heartbeat{.staleness = std::vector<std::uint64_t>(limits::kStalenessBucketsMax + 1)}),
            "too-large: Heartbeat.staleness: 65537 items, expected at most 65536");
  EXPECT_EQ(EncodeError(Heartbeat{.fenced = std::vector<FencedTick>(limits::kWorkerEntriesMax)}), "");
  EXPECT_NE(EncodeError(Heartbeat{.fenced = std::vector<FencedTick>(limits::kWorkerEntriesMax + 1)}), "");
  EXPECT_EQ(EncodeError(Heartbeat{.fenced_ticks = std::vector<WorkerTick>(limits::kFencedTicksMax)}), "");
  EXPECT_NE(EncodeError(Heartbeat{.fenced_ticks = std::vector<WorkerTick>(limits::kFencedTicksMax + 1)}), "");
  EXPECT_EQ(EncodeError(Tick{.earlier = std::vector<TickPoint>(limits::kTicksKeptMax)}), "");
  EXPECT_NE(EncodeError(Tick{.earlier = std::vector<TickPoint>(limits::kTicksKeptMax + 1)}), "");
  EXPECT_EQ(EncodeError(PushAck{.sections = std::vector<SectionAck>(1 << limits::kPartitionBitsMax)}), "");
  EXPECT_NE(EncodeError(PushAck{.sections = std::vector<SectionAck>((1 << limits::kPartitionBitsMax) + 1)}), "");
  EXPECT_EQ(EncodeError(LeaseReply{.grants = std::vector<LeaseGrant>(limits::kLeasesPerWorkerMax)}), "");
  EXPECT_NE(EncodeError(LeaseReply{.grants = std::vector<LeaseGrant>(limits::kLeasesPerWorkerMax + 1)}), "");
  EXPECT_EQ(EncodeError(CheckpointPart{.files = std::vector<CheckpointFile>(limits::kCheckpointFilesMax)}), "");
  EXPECT_NE(EncodeError(CheckpointPart{.files = std::vector<CheckpointFile>(limits::kCheckpointFilesMax + 1)}), "");
  EXPECT_EQ(EncodeError(CreateTable{.spec = {.name = names(limits::kNameBytesMax)}}), "");
  EXPECT_NE(EncodeError(CreateTable{.spec = {.name = names(limits::kNameBytesMax + 1)}}), "");
}

// The longest view that the limits allow fits a header.
TEST(Limits, LargestViewTravels) {
  View view;
  view.routes.partition_bits = limits::kPartitionBitsMax;
  view.routes.owners = EvenOwners(view.routes.partition_bits, limits::kShardsMax);
  view.routes.endpoints.assign(limits::kShardsMax, std::string(limits::kEndpointBytesMax, 'e'));
  view.workers.resize(limits::kWorkerEntriesMax);
  view.tables.assign(limits::kTablesMax, TableSpec{.name = std::string(limits::kNameBytesMax, 't')});
  EXPECT_EQ(EncodeError(ViewUpdate{view}), "");
  view.tables.emplace_back();
  EXPECT_EQ(EncodeError(ViewUpdate{view}), "too-large: ViewUpdate.view.tables: 1025 items, expected at most 1024");
  view.tables.pop_back();
  for (TableSpec& table : view.tables)  // of a rule without options
    for (std::uint32_t i = 0; i < limits::kRuleOptionsMax; ++i)
      table.optimizer.options[std::to_string(100 + i) + std::string(limits::kRuleNameBytesMax - 3, 'o')] = 1;
  EXPECT_EQ(EncodeError(ViewUpdate{view}), "");
  view.tables[0].optimizer.options["p"] = 1;
  EXPECT_EQ(EncodeError(ViewUpdate{view}),
            "too-large: ViewUpdate.view.tables[].optimizer.options: 17 items, expected at most 16");
}

TEST(Limits, ALeaseWithEveryBucketTravels) {
  LeaseDone done;
  for (std::uint32_t b = 0; b < Quality::kBuckets; ++b) done.quality.At(b) = {b, b + 1};
  EXPECT_EQ(EncodeError(LeaseRequest{.done = std::vector<LeaseDone>(8, done)}), "");
  const std::string error = EncodeError(LeaseRequest{.done = std::vector<LeaseDone>(16, done)});
  EXPECT_EQ(error.substr(0, 32), "too-large: LeaseRequest: header:") << error;
}

}  // namespace
}  // namespace tarn::net
