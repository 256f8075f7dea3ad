// Shows that Decode rejects each class of invalid bytes with an error that names the field, and that no single changed
// byte and no truncation of a valid message causes undefined behaviour.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/limits.h"
#include "net/frame.h"
#include "tests/unit/net/random_message.h"
#include "wire_generated.h"

namespace tarn::net {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

std::string DecodeError(const std::vector<Buffer>& frames) {
  const auto message = Decode(std::span<const Buffer>(frames));
  return message ? "" : ToString(message.error());
}

Buffer BytesOf(const std::string& bytes) { return Buffer::Copy(bytes.data(), bytes.size()); }

// A packed frame around a header, with any keys and values.
Buffer PackedFrame(const FlatBufferBuilder& builder, const std::string& keys = {}, const std::string& values = {}) {
  const Prefix prefix{.magic = kMagic,
                      .version = static_cast<std::uint8_t>(limits::kProtocolVersion),
                      .kind = 2,
                      .header_bytes = builder.GetSize(),
                      .keys_bytes = static_cast<std::uint32_t>(keys.size())};
  std::string bytes(reinterpret_cast<const char*>(&prefix), sizeof(prefix));
  bytes.append(reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize());
  bytes.resize((bytes.size() + 7) / 8 * 8);
  bytes += keys;
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return BytesOf(bytes + values);
}

// The error for a message whose body `make` builds.
template <typename Make>
std::string BodyError(wire::Body type, Make make, const std::string& keys = {}, const std::string& values = {}) {
  FlatBufferBuilder builder;
  const Offset<void> body = make(builder);
  builder.Finish(wire::CreateHeader(builder, 1, Role::kWorker, 0, 1, 1, type, body));
  return DecodeError({PackedFrame(builder, keys, values)});
}

// The error for a push of `count` keys of one table, in one section of `section_count`.
std::string PushError(std::uint32_t count, std::uint32_t section_count, std::uint32_t keys_bytes,
                      std::uint32_t values_bytes, wire::KeyCodec codec = wire::KeyCodec::Raw, Key first_key = 0,
                      std::uint32_t partition = 0) {
  const auto make = [&](FlatBufferBuilder& b) {
    const std::vector<wire::Section> sections = {{partition, section_count, 1}};
    const auto list = wire::CreateKeyList(b, codec, first_key, count, b.CreateVectorOfStructs(sections));
    const auto part = wire::CreatePushPart(b, 1, 1, wire::ValueCodec::Fp32, list, {}, flatbuffers::nullopt,
                                           wire::PushAction::Step, keys_bytes, values_bytes);
    return wire::CreatePush(b, 1, 1, b.CreateVector(&part, 1)).Union();
  };
  return BodyError(wire::Body::Push, make, std::string(keys_bytes, 'k'), std::string(values_bytes, 'v'));
}

Buffer ValidFrame() {
  Message message;
  message.body = Tick{.clock = Clock(4), .position = {LeaseId(1), 256}};
  return (*Encode(message))[0];
}

Buffer ChangedPrefix(void (*change)(Prefix*)) {
  Buffer frame = ValidFrame();
  Prefix prefix;
  std::memcpy(&prefix, frame.data(), sizeof(prefix));
  change(&prefix);
  std::memcpy(frame.data(), &prefix, sizeof(prefix));
  return frame;
}

TEST(Malformed, Frames) {
  const Buffer empty;
  EXPECT_EQ(DecodeError({}), "malformed: message: 0 frames, expected 1 or 3");
  EXPECT_EQ(DecodeError({empty, empty, empty, empty}), "too-large: message: 4 frames, expected 1 or 3");
  EXPECT_EQ(DecodeError({empty}), "malformed: prefix: 0 bytes, expected 16");
  EXPECT_EQ(DecodeError({ValidFrame(), empty}), "malformed: message: 2 frames of kind 2, expected 1");
  const Buffer large = Buffer::Copy(std::string(limits::kSmallMessageBytes + 1, 0).data(), 100);
  EXPECT_EQ(DecodeError({large}), "malformed: prefix.magic: 0x00000000, expected 0x4e524154");
}

TEST(Malformed, Prefix) {
  const auto error = [](void (*change)(Prefix*)) { return DecodeError({ChangedPrefix(change)}); };
  EXPECT_EQ(error([](Prefix*) {}), "");
  EXPECT_EQ(error([](Prefix* p) { p->version = 1; }), "wrong-job: prefix.version: protocol 1, expected 4");
  EXPECT_EQ(error([](Prefix* p) { p->kind = 3; }), "malformed: prefix.kind: 3, expected 1 (split) or 2 (packed)");
  EXPECT_EQ(error([](Prefix* p) { p->kind = 1; }), "malformed: message: 1 frames of kind 1, expected 3");
  EXPECT_EQ(error([](Prefix* p) { p->reserved = 9; }), "malformed: prefix.reserved: 9, expected 0");
  EXPECT_NE(error([](Prefix* p) { p->header_bytes = 0xffffffff; }), "");
  EXPECT_NE(error([](Prefix* p) { p->keys_bytes = 0xffffffff; }), "");
  EXPECT_NE(error([](Prefix* p) { p->header_bytes = 0; }), "");
  EXPECT_EQ(error([](Prefix* p) { p->keys_bytes = 8; }).substr(0, 18), "malformed: prefix:");
}

TEST(Malformed, PackedFrameOverItsLimit) {
  Message message;
  message.body = Shutdown{};
  Buffer frame = (*Encode(message))[0];
  Buffer longer = Buffer::Allocate(limits::kSmallMessageBytes + 1);
  std::memset(longer.data(), 0, longer.size());
  std::memcpy(longer.data(), frame.data(), frame.size());
  EXPECT_EQ(DecodeError({longer}), "too-large: packed frame: 8193 bytes, expected at most 8192");
}

TEST(Malformed, SplitFramesThatDoNotMatchThePrefix) {
  Message message;
  KeyList keys{.count = 4096, .sections = {{PartitionId(0), 4096, Sequence(0)}}};
  keys.frame = Buffer::Copy(std::string(4096 * 8, 'k').data(), 4096 * 8);
  message.body = Pull{.tables = {{.keys = std::move(keys)}}};
  std::vector<Buffer> frames = *Encode(message);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(DecodeError(frames), "");
  EXPECT_EQ(DecodeError({frames[0], frames[2], frames[1]}),
            "malformed: prefix.keys_bytes: 32768, expected 0 (the keys frame)");
  EXPECT_EQ(DecodeError({frames[0], frames[1], frames[1]}), "malformed: Pull.values frame: 32768 bytes, expected none");
  frames[0] = Buffer::Copy(frames[0].data(), frames[0].size() - 8);
  EXPECT_EQ(DecodeError(frames).substr(0, 30), "malformed: prefix.header_bytes");
}

TEST(Malformed, PaddingThatIsNotZero) {
  Message message;
  message.body = Barrier{.number = 1};
  for (std::size_t extra = 0; extra < 64; ++extra) {
    message.job = extra;
    Buffer frame = (*Encode(message))[0];
    Prefix prefix;
    std::memcpy(&prefix, frame.data(), sizeof(prefix));
    if (prefix.header_bytes % 8 == 0) continue;
    frame.data()[frame.size() - 1] = std::byte{1};
    EXPECT_EQ(DecodeError({frame}).substr(0, 29), "malformed: padding: not zero ");
    return;
  }
}

TEST(Malformed, KeysAndCounts) {
  EXPECT_EQ(PushError(2, 2, 16, 8), "");
  EXPECT_EQ(PushError(2, 2, 8, 8), "malformed: Push.tables[].keys frame: 8 bytes, expected 16 for 2 keys");
  EXPECT_EQ(PushError(2, 1, 16, 8),
            "malformed: Push.tables[].keys.sections: counts add up to 1, expected keys.count 2");
  EXPECT_EQ(
      PushError(2, 2, 16, 8, wire::KeyCodec::Range),
      "malformed: Push.tables[].keys frame: 16 bytes, expected none for keys sent as a range or as a list number");
  EXPECT_EQ(PushError(2, 2, 0, 8, wire::KeyCodec::Range, ~Key{0} - 1), "");
  EXPECT_EQ(PushError(2, 2, 0, 8, wire::KeyCodec::Range, ~Key{0}),
            "malformed: Push.tables[].keys.first_key: 18446744073709551615 with count 2 goes past the last key");
  EXPECT_EQ(PushError(2, 2, 16, 8, wire::KeyCodec(4)), "malformed: Push.tables[].keys.codec: value 4, expected 0 to 3");
  EXPECT_EQ(PushError(2, 2, 16, 8, wire::KeyCodec::Delta),
            "malformed: Push.tables[].keys frame: 16 bytes, expected 17 to 33 for 2 delta-coded keys");
  EXPECT_EQ(PushError(2, 2, 24, 8, wire::KeyCodec::Delta), "");
  EXPECT_EQ(PushError(2, 2, 40, 8, wire::KeyCodec::Delta),
            "malformed: Push.tables[].keys frame: 40 bytes, expected 17 to 33 for 2 delta-coded keys");
  EXPECT_EQ(PushError(2, 2, 0, 8, wire::KeyCodec::Held),
            "malformed: Push.tables[].keys.list: 0, expected the number of a list that the receiver holds");
  EXPECT_EQ(PushError(2, 2, 16, 8, wire::KeyCodec::Raw, 0, 4095), "");
  EXPECT_EQ(PushError(2, 2, 16, 8, wire::KeyCodec::Raw, 0, 4096),
            "malformed: Push.tables[].keys.sections[].partition: 4096, expected below 4096");
  EXPECT_EQ(PushError(0xffffffff, 0xffffffff, 0, 8, wire::KeyCodec::Range),
            "too-large: Push.tables[].keys.count: 4294967295, expected at most 8388608");
}

TEST(Malformed, ValuesThatAreNoRows) {
  EXPECT_EQ(PushError(0, 0, 0, 0), "");
  EXPECT_EQ(PushError(0, 0, 0, 4), "malformed: Push.tables[].values frame: 4 bytes, expected none");
  EXPECT_EQ(PushError(2, 2, 16, 0),
            "malformed: Push.tables[].values frame: 0 bytes, expected 2 rows of 1 to 4096 values, 4 to 16384 bytes "
            "each");
  EXPECT_NE(PushError(2, 2, 16, 12), "");
  EXPECT_NE(PushError(1, 1, 8, 4 * 1500 + 2), "");
}

// One table of a message under construction: `count` keys in one section.
struct WireTable {
  std::uint32_t count = 0;
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
};

// The error for a push of these tables, with raw keys.
std::string TablesError(const std::vector<WireTable>& tables, const std::string& keys = {},
                        const std::string& values = {}) {
  const auto make = [&](FlatBufferBuilder& b) {
    std::vector<Offset<wire::PushPart>> parts;
    for (const WireTable& table : tables) {
      const std::vector<wire::Section> sections = {{0, table.count, 1}};
      const auto list = wire::CreateKeyList(b, wire::KeyCodec::Raw, 0, table.count, b.CreateVectorOfStructs(sections));
      parts.push_back(wire::CreatePushPart(b, 1, 1, wire::ValueCodec::Fp32, list, {}, flatbuffers::nullopt,
                                           wire::PushAction::Step, table.key_bytes, table.value_bytes));
    }
    return wire::CreatePush(b, 1, 1, b.CreateVector(parts)).Union();
  };
  return BodyError(wire::Body::Push, make, keys, values);
}

TEST(Malformed, TooFewOrTooManyTables) {
  EXPECT_EQ(TablesError({}), "malformed: Push.tables: 0 items, expected 1 to 64");
  EXPECT_EQ(TablesError(std::vector<WireTable>(limits::kMessageTablesMax)), "");
  EXPECT_EQ(TablesError(std::vector<WireTable>(limits::kMessageTablesMax + 1)),
            "too-large: Push.tables: 65 items, expected 1 to 64");
  const auto no_list = [](FlatBufferBuilder& b) { return wire::CreatePull(b, 1).Union(); };
  EXPECT_EQ(BodyError(wire::Body::Pull, no_list), "malformed: Pull.tables: 0 items, expected 1 to 64");
  const auto no_rows = [](FlatBufferBuilder& b) { return wire::CreatePullReply(b, 1).Union(); };
  EXPECT_EQ(BodyError(wire::Body::PullReply, no_rows), "malformed: PullReply.tables: 0 items, expected 1 to 64");
}

// Two tables of one key and one value each; the values of the second one begin at byte 8.
TEST(Malformed, BytesOfTablesThatDoNotFillTheFrames) {
  const std::vector<WireTable> two = {{1, 8, 4}, {1, 8, 4}};
  const std::string keys(16, 'k'), values = std::string("vvvv\0\0\0\0vvvv", 12);
  EXPECT_EQ(TablesError(two, keys, values), "");
  EXPECT_EQ(TablesError(two, keys.substr(0, 8), values),
            "malformed: Push.tables[].keys frame: 8 bytes, expected at least 16");
  EXPECT_EQ(TablesError(two, keys, values.substr(0, 11)),
            "malformed: Push.tables[].values frame: 11 bytes, expected at least 12");
  EXPECT_EQ(TablesError(two, keys, values.substr(0, 4)),
            "malformed: Push.tables[].values frame: 4 bytes, expected at least 12");
  EXPECT_EQ(TablesError(two, {}, values), "malformed: Push.tables[].keys frame: 0 bytes, expected at least 8");
  EXPECT_EQ(TablesError({{1, 8, 4}, {1, 8, 0xffffffff}}, keys, values),
            "malformed: Push.tables[].values frame: 12 bytes, expected at least 4294967303");
  EXPECT_EQ(TablesError({{1, 0xffffffff, 4}, {1, 8, 4}}, keys, values),
            "malformed: Push.tables[].keys frame: 16 bytes, expected at least 4294967295");
  EXPECT_EQ(TablesError(two, keys + "k", values), "malformed: Push.keys frame: 17 bytes, expected 16");
  EXPECT_EQ(TablesError(two, keys, values + "vvvv"), "malformed: Push.values frame: 16 bytes, expected 12");
  EXPECT_EQ(TablesError({{}, {}}, {}, values), "malformed: Push.values frame: 12 bytes, expected none");
  EXPECT_EQ(TablesError({{1, 8, 4}, {1, 8, 0}}, keys, values.substr(0, 4)).substr(0, 48),
            "malformed: Push.tables[].values frame: 0 bytes, ");
}

TEST(Malformed, PaddingBetweenTablesThatIsNotZero) {
  const std::vector<WireTable> two = {{1, 8, 4}, {1, 8, 4}};
  const std::string keys(16, 'k');
  for (const std::size_t at : {std::size_t{4}, std::size_t{7}}) {
    std::string values("vvvv\0\0\0\0vvvv", 12);
    values[at] = 1;
    EXPECT_EQ(TablesError(two, keys, values),
              fmt::format("malformed: Push.tables[].values frame: the padding at byte {} is not 0", at));
  }
}

TEST(Malformed, TooManyKeysOverAllTables) {
  const auto error = [](std::uint32_t first, std::uint32_t second) {
    const auto make = [&](FlatBufferBuilder& b) {
      std::vector<Offset<wire::PullPart>> parts;
      for (const std::uint32_t count : {first, second}) {
        const std::vector<wire::Section> sections = {{0, count, 0}};
        const auto list = wire::CreateKeyList(b, wire::KeyCodec::Range, 0, count, b.CreateVectorOfStructs(sections));
        parts.push_back(wire::CreatePullPart(b, 1, wire::ValueCodec::Fp32, list));
      }
      return wire::CreatePull(b, 1, 1, b.CreateVector(parts)).Union();
    };
    return BodyError(wire::Body::Pull, make);
  };
  EXPECT_EQ(error(limits::kKeysPerMessageMax - 5, 5), "");
  EXPECT_EQ(error(limits::kKeysPerMessageMax - 5, 6),
            "too-large: Pull.tables: 8388609 keys, expected at most 8388608 in a message");
  EXPECT_EQ(error(1, limits::kKeysPerMessageMax + 1),
            "too-large: Pull.tables[].keys.count: 8388609, expected at most 8388608");
}

TEST(Malformed, EnumsWithoutAName) {
  const auto error = [](wire::ErrorCode code) {
    const wire::Code value(code);
    return BodyError(wire::Body::Shutdown,
                     [&](FlatBufferBuilder& b) { return wire::CreateShutdown(b, &value).Union(); });
  };
  EXPECT_EQ(error(wire::ErrorCode::MAX), "");
  EXPECT_EQ(error(wire::ErrorCode(21)), "malformed: Shutdown.code: value 21, expected 0 to 20");
  const auto barrier = [](FlatBufferBuilder& b) { return wire::CreateBarrier(b, 1).Union(); };
  EXPECT_EQ(BodyError(wire::Body::Barrier, barrier), "");
  const int last = int(wire::Body::MAX);
  EXPECT_EQ(BodyError(wire::Body(last + 1), barrier),
            fmt::format("malformed: body: type {}, expected 1 to {}", last + 1, last));
  EXPECT_EQ(BodyError(wire::Body::NONE, barrier), fmt::format("malformed: body: type 0, expected 1 to {}", last));
}

// A push of one row. Decode does not know the width of the row; the receiver does and checks the bytes.
TEST(Malformed, LargestValuesAlone) {
  const auto push = [](const std::string& values) {
    const auto make = [&](FlatBufferBuilder& b) {
      const std::vector<wire::Section> sections = {{0, 1, 1}};
      const auto list = wire::CreateKeyList(b, wire::KeyCodec::Range, 0, 1, b.CreateVectorOfStructs(sections));
      const auto part = wire::CreatePushPart(b, 1, 1, wire::ValueCodec::TopK, list, {}, flatbuffers::nullopt,
                                             wire::PushAction::Step, 0, static_cast<std::uint32_t>(values.size()));
      return wire::CreatePush(b, 1, 1, b.CreateVector(&part, 1)).Union();
    };
    return BodyError(wire::Body::Push, make, {}, values);
  };
  EXPECT_EQ(push(std::string(4, 0)), "");
  EXPECT_EQ(push("abc"),
            "malformed: Push.tables[].values frame: 3 bytes, expected 4 to 36868 for the largest values of 1 rows");
  const auto reply = [](FlatBufferBuilder& b) {
    const auto part = wire::CreateReplyPart(b, 1, wire::ValueCodec::TopK, 1, {}, 4);
    return wire::CreatePullReply(b, 1, 1, b.CreateVector(&part, 1)).Union();
  };
  EXPECT_EQ(BodyError(wire::Body::PullReply, reply, {}, std::string(4, 0)),
            "malformed: PullReply.tables[].codec: topk, which is for pushes alone");
}

TEST(Malformed, PiecesOfBlobs) {
  const auto error = [](std::uint64_t offset, std::uint64_t total, std::size_t bytes) {
    return BodyError(
        wire::Body::PutBlob,
        [&](FlatBufferBuilder& b) {
          const wire::CheckpointId id(1);
          return wire::CreatePutBlob(b, &id, offset, total).Union();
        },
        {}, std::string(bytes, 'x'));
  };
  EXPECT_EQ(error(0, 10, 10), "");
  EXPECT_EQ(error(7, 10, 3), "");
  EXPECT_EQ(error(8, 10, 3),
            "malformed: PutBlob.values frame: 3 bytes at offset 8 of a blob of 10 bytes, expected 1 to 1048576 bytes "
            "that end within the blob");
  EXPECT_EQ(error(0, 10, 0),
            "malformed: PutBlob.values frame: 0 bytes at offset 0 of a blob of 10 bytes, expected 1 to 1048576 bytes "
            "that end within the blob");
  EXPECT_EQ(error(~std::uint64_t{0}, 10, 3),
            "malformed: PutBlob.values frame: 3 bytes at offset 18446744073709551615 of a blob of 10 bytes, expected 1 "
            "to 1048576 bytes that end within the blob");
  EXPECT_EQ(error(0, limits::kBlobBytesMax, 1), "");
  EXPECT_EQ(error(0, limits::kBlobBytesMax + 1, 1),
            "too-large: PutBlob.total: 1099511627777, expected at most 1099511627776");
  const auto no_file = [](FlatBufferBuilder& b) {
    const wire::CheckpointId id(1);
    return wire::CreatePutBlobAck(b, &id).Union();
  };
  EXPECT_EQ(BodyError(wire::Body::PutBlobAck, no_file), "malformed: PutBlobAck.file: missing");
}

TEST(Malformed, PartsThatAreMissing) {
  const auto no_keys = [](FlatBufferBuilder& b) {
    const auto part = wire::CreatePullPart(b, 1);
    return wire::CreatePull(b, 1, 1, b.CreateVector(&part, 1)).Union();
  };
  EXPECT_EQ(BodyError(wire::Body::Pull, no_keys), "malformed: Pull.tables[].keys: missing");
  const auto no_position = [](FlatBufferBuilder& b) {
    const wire::Clock clock(1);
    return wire::CreateTick(b, &clock).Union();
  };
  EXPECT_EQ(BodyError(wire::Body::Tick, no_position), "malformed: Tick.position: missing");
  const auto no_view = [](FlatBufferBuilder& b) {
    const wire::Incarnation incarnation(1);
    const wire::Clock clock(1);
    return wire::CreateWelcome(b, 1, 0, &incarnation, &clock).Union();
  };
  EXPECT_EQ(BodyError(wire::Body::Welcome, no_view), "malformed: Welcome.view: missing");
  FlatBufferBuilder builder;
  builder.Finish(wire::CreateHeader(builder, 1, Role::kWorker, 0, 1, 1, wire::Body::Tick));
  EXPECT_EQ(DecodeError({PackedFrame(builder)}), "malformed: Tick.body: missing");
}

std::string ViewError(std::uint32_t bits, const std::vector<std::uint32_t>& owners, std::size_t shards) {
  ViewUpdate update;
  update.view.routes.partition_bits = bits;
  for (std::uint32_t owner : owners) update.view.routes.owners.emplace_back(owner);
  update.view.routes.endpoints.assign(shards, "tcp://127.0.0.1:1");
  return BodyError(wire::Body::ViewUpdate,
                   [&](FlatBufferBuilder& b) { return wire::ViewUpdate::Pack(b, &update).Union(); });
}

TEST(Malformed, Routes) {
  EXPECT_EQ(ViewError(1, {0, 1}, 2), "");
  EXPECT_EQ(ViewError(0, {}, 0), "");
  EXPECT_EQ(ViewError(1, {0, 2}, 2),
            "malformed: ViewUpdate.view.routes.owners[]: shard 2, expected below 2 (the endpoints)");
  EXPECT_EQ(ViewError(1, {0, 1, 1}, 2),
            "malformed: ViewUpdate.view.routes.owners: 3 items, expected 2 for 1 partition bits");
  EXPECT_EQ(ViewError(13, {}, 2), "too-large: ViewUpdate.view.routes.partition_bits: 13, expected at most 12");
}

std::string QualityError(const std::vector<std::uint16_t>& bucket, std::size_t counts, std::size_t leases) {
  FlatBufferBuilder b;
  const std::vector<std::uint32_t> numbers(counts, 1);
  const auto quality =
      wire::CreateQuality(b, 1, 1, 1, 0, b.CreateVector(bucket), b.CreateVector(numbers), b.CreateVector(numbers));
  std::vector<Offset<wire::LeaseDone>> done;  // all share one table of buckets
  const wire::LeaseId lease(1);
  done.reserve(leases);
  for (std::size_t i = 0; i < leases; ++i) done.push_back(wire::CreateLeaseDone(b, &lease, quality));
  const wire::SetRows rows(0, 0, 0);
  const auto body = wire::CreateLeaseRequest(b, 1, 1, b.CreateVector(done), &rows);
  b.Finish(wire::CreateHeader(b, 1, Role::kWorker, 0, 1, 1, wire::Body::LeaseRequest, body.Union()));
  return DecodeError({PackedFrame(b)});
}

TEST(Malformed, Buckets) {
  EXPECT_EQ(QualityError({1, 5}, 2, 3), "");
  EXPECT_EQ(QualityError({5, 5}, 2, 1),
            "malformed: LeaseRequest.done[].quality.bucket: 5 after 5, expected ascending order");
  EXPECT_EQ(QualityError({1, 5}, 3, 1).substr(0, 37), "malformed: LeaseRequest.done[].qualit");
  // A small message must not decode to a large one: 60 leases that share 300 buckets.
  std::vector<std::uint16_t> many(300);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::uint16_t>(i);
  EXPECT_EQ(QualityError(many, 300, 1), "");
  EXPECT_EQ(QualityError(many, 300, 60).substr(0, 35), "too-large: LeaseRequest.done[].qual");
}

// FlatBuffers does not verify that 8-byte items lie at multiples of 8; here they lie 4 behind one.
TEST(Malformed, ItemsThatAreNotAligned) {
  const auto error = [](int shifts) {
    FlatBufferBuilder b;
    for (int i = 0; i < shifts; ++i) b.CreateVector(std::vector<std::uint32_t>{});  // 4 bytes
    b.StartVector(sizeof(wire::TickPoint) / 4, 4);
    for (std::size_t i = 0; i < sizeof(wire::TickPoint) / 4; ++i) b.PushElement(std::uint32_t{0});
    const Offset<flatbuffers::Vector<const wire::TickPoint*>> earlier(b.EndVector(1));
    const wire::Clock clock(1);
    const wire::DataPosition position(1, 1);
    const auto body = wire::CreateTick(b, &clock, &position, earlier);
    b.Finish(wire::CreateHeader(b, 1, Role::kWorker, 0, 1, 1, wire::Body::Tick, body.Union()));
    return DecodeError({PackedFrame(b)});
  };
  const std::string first = error(0);
  const std::string second = error(1);
  EXPECT_TRUE(first.empty() != second.empty()) << first << second;
  EXPECT_EQ(first + second, "malformed: Tick.earlier: items not aligned to 8 bytes");
}

// Each truncation and each flipped bit of a valid message is refused or decoded. With sanitizers this shows that
// nothing is read out of bounds.
TEST(Malformed, CutsAndFlips) {
  SplitMix random(3);
  for (std::size_t body = 0; body < std::variant_size_v<Body>; ++body) {
    std::vector<Buffer> frames = *Encode(testing::RandomMessage(&random, body, 4));
    ASSERT_EQ(frames.size(), 1u);
    const Buffer& whole = frames[0];
    for (std::size_t size = 0; size < whole.size(); ++size) DecodeError({Buffer::Copy(whole.data(), size)});
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      Buffer flipped = Buffer::Copy(whole.data(), whole.size());
      flipped.data()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      DecodeError({flipped});
    }
  }
}

}  // namespace
}  // namespace tarn::net
