// Shows that a blob is read as it was written, chunk by chunk, and that a blob which is truncated, damaged, out of
// order or of another worker is refused by name.
#include "core/codec/worker_blob.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "core/hash.h"
#include "tests/unit/core/codec/old_seal.h"

namespace tarn {
namespace {

constexpr CheckpointId kCheckpoint{12};
constexpr WorkerRank kRank{3};

BlobChunk ChunkOf(std::uint32_t index, bool last) {
  BlobChunk chunk{kCheckpoint, kRank, Clock(99), index, last, {}, {}};
  chunk.rows.table = index % 2 == 0 ? "users" : "layer";
  chunk.rows.dim = 2;
  for (std::uint64_t i = 0; i < 3 + index; ++i) {
    chunk.rows.keys.push_back(Mix64(i));
    chunk.rows.clocks.push_back(Clock(i * 10));
    chunk.rows.values.push_back(float(i) * 0.5f);
    chunk.rows.values.push_back(std::numeric_limits<float>::infinity());
  }
  return chunk;
}

std::string BytesOf(const std::vector<BlobChunk>& chunks) {
  std::string bytes;
  for (const BlobChunk& chunk : chunks) {
    const Buffer encoded = EncodeBlobChunk(chunk);
    bytes.append(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  }
  return bytes;
}

Status Read(const std::string& bytes, std::vector<BlobChunk>* chunks = nullptr, CheckpointId checkpoint = kCheckpoint,
            WorkerRank rank = kRank) {
  return ReadBlob(std::as_bytes(std::span(bytes)), {"12-worker-3-40.blob", checkpoint, rank},
                  [&](BlobChunk chunk) -> Status {
                    if (chunks != nullptr) chunks->push_back(std::move(chunk));
                    return {};
                  });
}

std::string Refusal(const Status& status) { return status ? "accepted" : status.error().message; }

TEST(WorkerBlob, IsReadAsItWasWritten) {
  const std::vector<BlobChunk> chunks{
      ChunkOf(0, false), ChunkOf(1, false), {kCheckpoint, kRank, Clock(99), 2, true, {}, {}}};
  std::vector<BlobChunk> read;
  ASSERT_TRUE(Read(BytesOf(chunks), &read));
  ASSERT_EQ(read.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read[i].rows, chunks[i].rows);
    EXPECT_EQ(read[i].clock, Clock(99));
    EXPECT_EQ(read[i].last, i == 2);
  }
}

TEST(WorkerBlob, HasTheStateOfAProgramInSeveralChunks) {
  const std::string state(1000, 'x');
  const BlobChunk head{kCheckpoint, kRank, Clock(99), 0, false, {}, {}};
  std::string bytes;
  for (const Buffer& chunk : EncodeProgramState(head, std::as_bytes(std::span(state)), 300))
    bytes.append(reinterpret_cast<const char*>(chunk.data()), chunk.size());
  bytes += BytesOf({ChunkOf(4, true)});
  std::vector<BlobChunk> read;
  ASSERT_TRUE(Read(bytes, &read));
  ASSERT_EQ(read.size(), 5u);
  const auto joined = ReadProgramState(std::as_bytes(std::span(bytes)), {"12-worker-3-40.blob", kCheckpoint, kRank});
  ASSERT_TRUE(joined);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(joined->data()), joined->size()), state);
  EXPECT_EQ(read[4].rows.table, "users");
  EXPECT_TRUE(EncodeProgramState(head, {}, 300).empty());
}

TEST(WorkerBlob, AnotherBlobIsRefusedByName) {
  const std::string bytes = BytesOf({ChunkOf(0, true)});
  EXPECT_EQ(Refusal(Read(bytes, nullptr, CheckpointId(0))), "accepted") << "of any checkpoint";
  EXPECT_EQ(Refusal(Read(bytes, nullptr, CheckpointId(11))),
            "12-worker-3-40.blob: chunk 0 at byte 0: number 0 of checkpoint 12 and worker 3, expected 0 of 11 and 3");
  EXPECT_EQ(Refusal(Read(bytes, nullptr, kCheckpoint, WorkerRank(1))),
            "12-worker-3-40.blob: chunk 0 at byte 0: number 0 of checkpoint 12 and worker 3, expected 0 of 12 and 1");
  EXPECT_NE(Refusal(Read(BytesOf({ChunkOf(1, true)}))), "accepted") << "its first chunk is missing";
}

TEST(WorkerBlob, ATruncatedBlobIsRefused) {
  const std::string bytes = BytesOf({ChunkOf(0, false), ChunkOf(1, true)});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Status status = Read(bytes.substr(0, size));
    ASSERT_FALSE(status) << size;
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_TRUE(status.error().message.starts_with("12-worker-3-40.blob: chunk "));
  }
  EXPECT_EQ(Refusal(Read(bytes + "x")), "12-worker-3-40.blob: 1 bytes after the last chunk");
}

TEST(WorkerBlob, Version1IsReadAsBefore) {
  std::vector<BlobChunk> read;
  ASSERT_TRUE(Read(SealedBefore(BytesOf({ChunkOf(0, true)}), 1), &read));
  EXPECT_EQ(read.at(0).rows, ChunkOf(0, true).rows);
}

TEST(WorkerBlob, EveryDamagedByteIsRefused) {
  const std::string bytes = BytesOf({ChunkOf(0, false), ChunkOf(1, true)});
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    EXPECT_FALSE(Read(damaged)) << "byte " << i;
  }
}

// The seal is valid, but sizes in the body do not match.
TEST(WorkerBlob, SizesThatDoNotFitAreRefused) {
  const auto refused = [](auto change) {
    BlobChunk chunk = ChunkOf(0, true);
    change(&chunk.rows);
    return Refusal(Read(BytesOf({chunk})));
  };
  EXPECT_EQ(refused([](ResidualRows*) {}), "accepted");
  EXPECT_EQ(refused([](ResidualRows* rows) { rows->values.pop_back(); }),
            "12-worker-3-40.blob: chunk 0 at byte 0: residuals of table 'users': 3 keys, 3 clocks, 5 values of dim 2");
  EXPECT_NE(refused([](ResidualRows* rows) { rows->clocks.pop_back(); }), "accepted");
  EXPECT_NE(refused([](ResidualRows* rows) { rows->dim = 0; }), "accepted");
  EXPECT_NE(refused([](ResidualRows* rows) { rows->dim = 0x80000000u; }), "accepted");
  EXPECT_NE(refused([](ResidualRows* rows) { rows->table = std::string(200, 'x'); }), "accepted");
}

}  // namespace
}  // namespace tarn
