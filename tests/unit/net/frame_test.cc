// Shows that Decode(Encode(m)) is m for random messages of every body, at any alignment and split as well as packed;
// that large payloads are shared, not copied; and that Encode refuses what Decode would refuse.
#include "net/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/key_delta.h"
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

TEST_P(EveryBody, IsDecodedAsItWasEncoded) {
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

TEST_P(EveryBody, IsDecodedAtAnyAlignment) {
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
    // The keys and the values of the first table are at the beginning of a buffer.
    std::size_t of_keys = Buffer::kAlignment, of_values = Buffer::kAlignment;
    const auto check = [](const Buffer& bytes, std::size_t* alignment) {
      if (bytes.empty()) return;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % std::exchange(*alignment, 8), 0u);
    };
    ForEachPayload(
        *back, [&](const Buffer& keys) { check(keys, &of_keys); },
        [&](const Buffer& values) { check(values, &of_values); });
  }
}

// The encoding does not depend on earlier messages, nor on one that was rejected half-way.
TEST(Encoder, DoesNotDependOnEarlierMessages) {
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
TEST_P(EveryBody, ADefaultMessageIsDecoded) {
  SplitMix random(1);
  const Message message = RandomMessage(&random, GetParam(), 0);
  const auto frames = Encode(message);
  ASSERT_TRUE(frames) << ToString(frames.error());
  ASSERT_EQ(frames->size(), 1u);
  const auto back = Decode(std::span<const Buffer>(*frames));
  ASSERT_TRUE(back) << ToString(back.error());
  EXPECT_TRUE(Equal(message, *back));
}

Buffer Filled(std::size_t bytes, int value) {
  Buffer buffer = Buffer::Allocate(bytes);
  if (bytes != 0) std::memset(buffer.data(), value, bytes);
  return buffer;
}

// The error of decoding the encoded message, or of encoding it. `back`: gets the message.
std::string RoundTripError(const Message& message, Message* back = nullptr) {
  const auto frames = Encode(message);
  if (!frames) return ToString(frames.error());
  auto decoded = Decode(std::span<const Buffer>(*frames));
  if (!decoded) return "decode: " + ToString(decoded.error());
  if (back != nullptr) *back = std::move(*decoded);
  return "";
}

PushPart& PartOf(Message& push) { return std::get<Push>(push.body).tables.front(); }

// A reply to a pull of `count` rows of one float.
Message Reply(std::uint32_t count) {
  Message message;
  ReplyPart part{.table = TableId(1), .count = count, .values = Filled(count * sizeof(float), 1)};
  message.body = PullReply{.request = RequestId(7), .min_clock = Clock(3), .tables = {std::move(part)}};
  return message;
}

TEST(Frame, IsPackedUpToTheLimitAndSplitBeyond) {
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
  message.body = Push{.tables = {{.keys = {.count = 1024,
                                           .sections = {{PartitionId(3), 1024, Sequence(1)}},
                                           .frame = Filled(1024 * sizeof(Key), 0)},
                                  .values = Filled(1024 * 16 * sizeof(float), 0)}}};
  const auto frames = Encode(message);
  ASSERT_TRUE(frames) << ToString(frames.error());
  ASSERT_EQ(frames->size(), 3u);
  EXPECT_EQ((*frames)[1].data(), PartOf(message).keys.frame.data());
  EXPECT_EQ((*frames)[2].data(), PartOf(message).values.data());
}

// The rows of three tables, `count` of each, whose values have 12, 10 and 9 bytes a row. The first two tables have
// delta-coded keys, which Decode does not read.
Push PushOfThree(std::uint32_t count) {
  const KeyList keys{.count = count, .sections = {{PartitionId(3), count, Sequence(1)}}};
  Push push{.request = RequestId(7), .clock = Clock(5), .tables = {}};
  push.tables.push_back({.table = TableId(1), .keys = keys, .values = Filled(12 * count, 1)});
  push.tables.push_back(
      {.table = TableId(5), .codec = ValueCodec::kBf16, .keys = keys, .values = Filled(10 * count, 2)});
  push.tables.push_back(
      {.table = TableId(2), .codec = ValueCodec::kInt8, .keys = keys, .values = Filled(9 * count, 3)});
  for (PushPart& part : push.tables) {
    const int number = static_cast<int>(part.table.value);
    part.keys.codec = number == 2 ? KeyCodec::kRaw : KeyCodec::kDelta;
    const std::size_t bytes = number == 2 ? count * sizeof(Key) : DeltaBytesMin(count) + count + part.table.value;
    part.keys.frame = Filled(bytes, 0x10 + number);
  }
  return push;
}

Pull PullOf(const Push& push) {
  Pull pull{.request = push.request, .clock = push.clock, .tables = {}};
  for (const PushPart& part : push.tables) pull.tables.push_back({part.table, part.codec, part.keys});
  return pull;
}

PullReply ReplyTo(const Push& push) {
  PullReply reply{.request = push.request, .min_clock = push.clock, .tables = {}};
  for (const PushPart& part : push.tables)
    reply.tables.push_back({part.table, part.codec, part.keys.count, {Version(9)}, part.values});
  return reply;
}

Message Of(Body body) {
  Message message;
  message.body = std::move(body);
  return message;
}

TEST(Frame, SeveralTablesAreDecoded) {
  for (const std::uint32_t count : {1u, 3u, 1'001u}) {
    const Push push = PushOfThree(count);
    for (const Message& message : {Of(push), Of(PullOf(push)), Of(ReplyTo(push))}) {
      const auto frames = Encode(message);
      ASSERT_TRUE(frames) << ToString(frames.error());
      EXPECT_EQ(frames->size(), count < 1'000 ? 1u : limits::kFramesMax);
      Message back;
      ASSERT_EQ(RoundTripError(message, &back), "");
      EXPECT_TRUE(Equal(message, back)) << BodyName(message.body) << " of " << count;
    }
  }
}

// Tables without keys or values take no bytes and no padding.
TEST(Frame, EmptyTablesAreDecoded) {
  for (const std::size_t empty : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    Push push = PushOfThree(3);
    const std::size_t whole = (*Encode(Of(push)))[0].size();
    push.tables[empty].keys = {.codec = KeyCodec::kRange};
    push.tables[empty].values = {};
    for (const Message& message : {Of(push), Of(PullOf(push)), Of(ReplyTo(push))}) {
      Message back;
      ASSERT_EQ(RoundTripError(message, &back), "");
      EXPECT_TRUE(Equal(message, back)) << BodyName(message.body) << " without rows of table " << empty;
    }
    EXPECT_LT((*Encode(Of(push)))[0].size(), whole);
  }
}

// The values of `reply` in one buffer, each at the next multiple of 8 with zeros between, which `reply` then shares.
Buffer Gather(PullReply* reply) {
  std::size_t bytes = 0;
  for (const ReplyPart& part : reply->tables) bytes = PadTo8(bytes) + part.values.size();
  Buffer whole = Filled(bytes, 0);
  std::size_t at = 0;
  for (ReplyPart& part : reply->tables) {
    std::memcpy(whole.data() + at, part.values.data(), part.values.size());
    part.values = whole.Slice(at, part.values.size());
    at = PadTo8(at + part.values.size());
  }
  return whole;
}

TEST(Frame, SharesTablesInOneBuffer) {
  PullReply reply = ReplyTo(PushOfThree(1'001));
  const Buffer whole = Gather(&reply);
  const auto frames = Encode(Of(reply));
  ASSERT_TRUE(frames) << ToString(frames.error());
  ASSERT_EQ(frames->size(), 3u);
  EXPECT_EQ((*frames)[2].data(), whole.data());
  EXPECT_EQ((*frames)[2].size(), whole.size());
  // A decoded message has one buffer for all tables.
  Message back;
  ASSERT_EQ(RoundTripError(Of(reply), &back), "");
  const auto& tables = std::get<PullReply>(back.body).tables;
  EXPECT_EQ((*Encode(back))[2].data(), tables[0].values.data());
  // In another order they must be copied.
  std::ranges::reverse(reply.tables);
  EXPECT_NE((*Encode(Of(reply)))[2].data(), reply.tables[0].values.data());
  ASSERT_EQ(RoundTripError(Of(reply), &back), "");
  EXPECT_TRUE(Equal(Of(reply), back));
}

TEST(Frame, JoinsTablesInSeparateBuffersWithZeros) {
  PullReply reply = ReplyTo(PushOfThree(1'001));
  const auto frames = Encode(Of(reply));
  ASSERT_TRUE(frames) << ToString(frames.error());
  ASSERT_EQ(frames->size(), 3u);
  const Buffer expected = Gather(&reply);
  ASSERT_EQ((*frames)[2].size(), expected.size());
  EXPECT_EQ(std::memcmp((*frames)[2].data(), expected.data(), expected.size()), 0);
}

// A push of two rows of three floats in two sections.
Message PushOfTwo() {
  Message message;
  PushPart part{.keys = {.count = 2, .sections = {{PartitionId(3), 1, Sequence(1)}, {PartitionId(4), 1, Sequence(1)}}}};
  part.keys.sections[0].version = Version(7);
  part.keys.frame = Filled(2 * sizeof(Key), 0);
  part.values = Filled(2 * 3 * sizeof(float), 0);
  message.body = Push{.tables = {std::move(part)}};
  return message;
}

TEST(Frame, VersionsAreSentIfOneIsKnown) {
  Message message = PushOfTwo();
  const auto known = Encode(message);
  ASSERT_TRUE(known);
  Message back;
  ASSERT_EQ(RoundTripError(message, &back), "");
  const std::vector<Section>& sections = PartOf(back).keys.sections;
  EXPECT_EQ(sections[0].version, Version(7));
  EXPECT_EQ(sections[1].version, kNoVersion);
  PartOf(message).keys.sections[0].version = kNoVersion;
  EXPECT_LT((*Encode(message))[0].size(), (*known)[0].size());
}

// A message that a tarn with other options may have sent: the rule is unknown when the message is encoded, so that no
// default is added, and "adagrad" when it is decoded.
Expected<Message> OfAdagrad(NamedOptions options) {
  CreateTable body;
  body.spec.optimizer.kind = "adagraX";
  body.spec.optimizer.options = std::move(options);
  auto frames = Encode({.body = body});
  if (!frames) return std::unexpected(frames.error());
  const std::span bytes(reinterpret_cast<char*>(frames->front().data()), frames->front().size());
  std::ranges::search(bytes, std::string("adagraX")).back() = 'd';
  return Decode(std::span<const Buffer>(*frames));
}

TEST(Frame, MissingOptionsHaveTheirDefaults) {
  NamedOptions unknown;
  for (std::uint32_t i = 0; i < limits::kRuleOptionsMax; ++i) unknown[std::to_string(100 + i)] = 1;
  for (const NamedOptions& options : {NamedOptions(), unknown}) {
    const auto back = OfAdagrad(options);
    ASSERT_TRUE(back) << ToString(back.error());
    EXPECT_EQ(std::get<CreateTable>(back->body).spec.optimizer.options.size(),
              options.empty() ? FindUpdateRule("adagrad")->options.size() : limits::kRuleOptionsMax);
    const auto again = Encode(*back);
    ASSERT_TRUE(again) << ToString(again.error());
    const auto twice = Decode(std::span<const Buffer>(*again));
    ASSERT_TRUE(twice) << ToString(twice.error());
    EXPECT_TRUE(Equal(*back, *twice));
  }
}

TEST(Frame, PulledRowsFollowTheGradients) {
  Message message = PushOfTwo();
  PushPart& push = PartOf(message);
  push.pulled = ValueCodec::kBf16;
  EXPECT_EQ(RoundTripError(message), "") << "rows of two floats and two bf16";
  push.values = Filled(2 * 3 * (sizeof(float) + 2), 0);
  EXPECT_EQ(RoundTripError(message), "");
  push.values = Filled(2 * 3 * (sizeof(float) + 2) + 2, 0);
  const std::string error = RoundTripError(message);
  EXPECT_NE(error.find("values frame: 38 bytes, expected 2 rows of 1 to 4096 values, 6 to 24576 bytes each"),
            std::string::npos)
      << error;
  push.pulled = ValueCodec::kTopK;
  EXPECT_NE(RoundTripError(message).find("Push.tables[].pulled: rows in codec topk with gradients in codec fp32"),
            std::string::npos);
}

TEST(Frame, AnAssignmentHasWholeRowsAndADeletionNone) {
  Message message = PushOfTwo();
  PushPart& push = PartOf(message);
  const auto decoded = [&] {
    Message back;
    const std::string error = RoundTripError(message, &back);
    if (error.empty()) {
      EXPECT_EQ(PartOf(back).action, push.action);
    }
    return error;
  };
  push.action = PushAction::kAssign;
  EXPECT_EQ(decoded(), "");
  push.action = PushAction::kDelete;
  EXPECT_NE(decoded().find("values frame"), std::string::npos) << "with values";
  push.values = {};
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

TEST(Frame, TruncatesLongTextsAtACharacter) {
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
std::string EncodeError(Body body) { return RoundTripError(Of(std::move(body))); }

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
  EXPECT_EQ(EncodeError(PushAck{.sections = std::vector<SectionAck>(limits::kPartitionsMax)}), "");
  EXPECT_NE(EncodeError(PushAck{.sections = std::vector<SectionAck>(limits::kPartitionsMax + 1)}), "");
  const KeyList none{.sections = std::vector<Section>(limits::kPartitionsMax)};
  const KeyList over{.sections = std::vector<Section>(limits::kPartitionsMax + 1)};
  const KeyList one{.sections = std::vector<Section>(1)};
  EXPECT_EQ(EncodeError(Pull{.tables = {{.keys = none}}}), "");
  EXPECT_EQ(EncodeError(Pull{.tables = {{.keys = none}, {.keys = one}, {}}}),
            "too-large: Pull.tables[].sections: 4097 of all tables, expected at most 4096");
  EXPECT_EQ(EncodeError(PullReply{.tables = {{.versions = std::vector<Version>(limits::kPartitionsMax + 1)}, {}}}),
            "too-large: PullReply.tables[].versions: 4097 items, expected at most 4096");
  EXPECT_EQ(EncodeError(Pull{.tables = TableParts<PullPart>(limits::kMessageTablesMax)}), "");
  EXPECT_EQ(EncodeError(Pull{.tables = {{.keys = over}}}),
            "too-large: Pull.tables[].keys.sections: 4097 items, expected at most 4096");
  EXPECT_EQ(EncodeError(Pull{.tables = TableParts<PullPart>(limits::kMessageTablesMax + 1)}),
            "too-large: Pull.tables: 65 items, expected 1 to 64");
  EXPECT_EQ(EncodeError(PullReply{.tables = TableParts<ReplyPart>(limits::kMessageTablesMax)}), "");
  EXPECT_NE(EncodeError(PullReply{.tables = TableParts<ReplyPart>(limits::kMessageTablesMax + 1)}), "");
  EXPECT_EQ(EncodeError(Push{.tables = TableParts<PushPart>(limits::kMessageTablesMax)}), "");
  EXPECT_EQ(EncodeError(Push{}), "malformed: Push.tables: 0 items, expected 1 to 64");
  EXPECT_EQ(EncodeError(LeaseReply{.grants = std::vector<LeaseGrant>(limits::kLeasesPerWorkerMax)}), "");
  EXPECT_NE(EncodeError(LeaseReply{.grants = std::vector<LeaseGrant>(limits::kLeasesPerWorkerMax + 1)}), "");
  EXPECT_EQ(EncodeError(CheckpointPart{.files = std::vector<CheckpointFile>(limits::kCheckpointFilesMax)}), "");
  EXPECT_NE(EncodeError(CheckpointPart{.files = std::vector<CheckpointFile>(limits::kCheckpointFilesMax + 1)}), "");
  EXPECT_EQ(EncodeError(CreateTable{.spec = {.name = names(limits::kNameBytesMax)}}), "");
  EXPECT_NE(EncodeError(CreateTable{.spec = {.name = names(limits::kNameBytesMax + 1)}}), "");
}

// The longest view that the limits allow fits a header.
TEST(Limits, TheLargestViewFitsAHeader) {
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

TEST(Limits, ALeaseWithEveryBucketFitsAHeader) {
  LeaseDone done;
  for (std::uint32_t b = 0; b < Quality::kBuckets; ++b) done.quality.At(b) = {b, b + 1};
  EXPECT_EQ(EncodeError(LeaseRequest{.done = std::vector<LeaseDone>(8, done)}), "");
  const std::string error = EncodeError(LeaseRequest{.done = std::vector<LeaseDone>(16, done)});
  EXPECT_EQ(error.substr(0, 32), "too-large: LeaseRequest: header:") << error;
}

}  // namespace
}  // namespace tarn::net
