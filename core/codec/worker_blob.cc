#include "core/codec/worker_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "blob_generated.h"
#include "core/codec/sealed.h"
#include "core/limits.h"

namespace tarn {
namespace {

namespace fb = tarn::blob;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr SealedFormat kFormat{"TARNBLOB", "a worker's blob", 1, kBlobVersion, 2};

Offset<fb::ResidualRows> WriteRows(FlatBufferBuilder& b, const ResidualRows& rows) {
  if (rows.table.empty()) return {};
  const auto name = b.CreateString(rows.table);
  const auto keys = b.CreateVector(rows.keys);
  std::vector<std::uint64_t> clocks;
  clocks.reserve(rows.clocks.size());
  for (const Clock clock : rows.clocks) clocks.push_back(clock.value);
  const auto clocks_at = b.CreateVector(clocks);
  const auto values = b.CreateVector(rows.values);
  return fb::CreateResidualRows(b, name, rows.dim, keys, clocks_at, values);
}

std::unexpected<Error> Corrupt(const std::string& origin, std::string_view what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", origin, what));
}

template <typename T>
bool IsAligned(const flatbuffers::Vector<T>* items) {
  return items == nullptr || items->size() == 0 || reinterpret_cast<std::uintptr_t>(items->Data()) % sizeof(T) == 0;
}

template <typename T>
std::size_t SizeOf(const flatbuffers::Vector<T>* items) {
  return items == nullptr ? 0 : items->size();
}

Expected<ResidualRows> ReadRows(const fb::ResidualRows* m, const std::string& origin) {
  ResidualRows rows;
  if (m == nullptr) return rows;
  const std::size_t n = SizeOf(m->keys());
  if (m->table_name() == nullptr || m->table_name()->size() == 0 || m->table_name()->size() > kResidualNameBytesMax)
    return Corrupt(origin,
                   fmt::format("residuals of a table whose name has {} bytes, expected 1 to {}",
                               m->table_name() == nullptr ? 0 : m->table_name()->size(), kResidualNameBytesMax));
  if (m->dim() < 1 || m->dim() > kResidualDimMax || SizeOf(m->clocks()) != n || SizeOf(m->values()) != n * m->dim() ||
      !IsAligned(m->keys()) || !IsAligned(m->clocks()) || !IsAligned(m->values()))
    return Corrupt(origin, fmt::format("residuals of table '{}': {} keys, {} clocks, {} values of dim {}",
                                       m->table_name()->str(), n, SizeOf(m->clocks()), SizeOf(m->values()), m->dim()));
  rows.table = m->table_name()->str();
  rows.dim = m->dim();
  if (n == 0) return rows;
  rows.keys.assign(m->keys()->begin(), m->keys()->end());
  rows.clocks.reserve(n);
  for (const std::uint64_t clock : *m->clocks()) rows.clocks.push_back(Clock(clock));
  rows.values.assign(m->values()->begin(), m->values()->end());
  return rows;
}

Expected<BlobChunk> ReadChunk(std::string_view bytes, const std::string& origin) {
  const auto unsealed = Unseal(kFormat, bytes, origin);
  if (!unsealed) return std::unexpected(unsealed.error());
  const auto body = unsealed->body();
  flatbuffers::Verifier verifier(body.data(), body.size());
  if (!fb::VerifyChunkBuffer(verifier)) return Corrupt(origin, "its body is not a valid FlatBuffer");
  const fb::Chunk& m = *fb::GetChunk(body.data());
  auto rows = ReadRows(m.rows(), origin);
  if (!rows) return std::unexpected(rows.error());
  BlobChunk chunk{.checkpoint = CheckpointId(m.checkpoint()),
                  .rank = WorkerRank(m.rank()),
                  .clock = Clock(m.clock()),
                  .index = m.index(),
                  .last = m.last(),
                  .rows = *std::move(rows),
                  .state = {}};
  if (m.state() != nullptr) chunk.state = Buffer::Copy(m.state()->data(), m.state()->size());
  return chunk;
}

Status CheckChunk(const BlobChunk& chunk, std::uint32_t index, const BlobOrigin& origin, const std::string& name) {
  const bool of_checkpoint = origin.checkpoint.value == 0 || chunk.checkpoint == origin.checkpoint;
  if (of_checkpoint && chunk.rank == origin.rank && chunk.index == index) return {};
  const CheckpointId expected = of_checkpoint ? chunk.checkpoint : origin.checkpoint;
  return Corrupt(name, fmt::format("number {} of checkpoint {} and worker {}, expected {} of {} and {}", chunk.index,
                                   chunk.checkpoint.value, chunk.rank.value, index, expected.value, origin.rank.value));
}

// Encodes `chunk` with `state` in place of chunk.state. The chunks of a large state share the builder, because
// allocating its memory for each would take longer than encoding.
Buffer Encode(const BlobChunk& chunk, std::span<const std::byte> state, FlatBufferBuilder& b) {
  b.Clear();
  const auto rows = WriteRows(b, chunk.rows);
  Offset<flatbuffers::Vector<std::uint8_t>> state_at;
  if (!state.empty()) state_at = b.CreateVector(reinterpret_cast<const std::uint8_t*>(state.data()), state.size());
  fb::FinishChunkBuffer(b, fb::CreateChunk(b, chunk.checkpoint.value, chunk.rank.value, chunk.clock.value, chunk.index,
                                           chunk.last, rows, state_at));
  Buffer sealed = Buffer::Allocate(kSealBytes + b.GetSize());
  std::memcpy(sealed.data() + kSealBytes, b.GetBufferPointer(), b.GetSize());
  SealInPlace(kFormat, {sealed.data(), sealed.size()});
  return sealed;
}

}  // namespace

Buffer EncodeBlobChunk(const BlobChunk& chunk) {
  FlatBufferBuilder b;
  return Encode(chunk, {chunk.state.data(), chunk.state.size()}, b);
}

std::vector<Buffer> EncodeProgramState(const BlobChunk& head, std::span<const std::byte> state,
                                       std::size_t chunk_bytes) {
  std::vector<Buffer> chunks;
  BlobChunk chunk = head;
  FlatBufferBuilder b(std::min(chunk_bytes, state.size()) + 1'024);
  for (; !state.empty(); ++chunk.index) {
    const auto part = state.first(std::min(chunk_bytes, state.size()));
    chunks.push_back(Encode(chunk, part, b));
    state = state.subspan(part.size());
  }
  return chunks;
}

Expected<Buffer> ReadProgramState(std::span<const std::byte> bytes, const BlobOrigin& origin) {
  std::vector<Buffer> parts;
  std::size_t size = 0;
  TARN_RETURN_IF_ERROR(ReadBlob(bytes, origin, [&](BlobChunk chunk) -> Status {
    size += chunk.state.size();
    parts.push_back(std::move(chunk.state));
    return {};
  }));
  Buffer state = Buffer::Allocate(size);
  std::byte* to = state.data();
  for (const Buffer& part : parts) to = std::ranges::copy(part.as<std::byte>(), to).out;
  return state;
}

Status ReadBlob(std::span<const std::byte> bytes, const BlobOrigin& origin,
                const std::function<Status(BlobChunk chunk)>& take) {
  std::string_view left(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (std::uint32_t index = 0;; ++index) {
    const std::string name = fmt::format("{}: chunk {} at byte {}", origin.name, index, bytes.size() - left.size());
    const std::size_t size = SealedSize(left);
    auto chunk = ReadChunk(left.substr(0, std::min(size, left.size())), name);
    if (!chunk) return std::unexpected(chunk.error());
    TARN_RETURN_IF_ERROR(CheckChunk(*chunk, index, origin, name));
    left.remove_prefix(size);
    const bool last = chunk->last;
    TARN_RETURN_IF_ERROR(take(*std::move(chunk)));
    if (!last) continue;
    if (left.empty()) return {};
    return Corrupt(origin.name, fmt::format("{} bytes after the last chunk", left.size()));
  }
}

}  // namespace tarn
