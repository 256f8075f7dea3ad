#include "worker/client/client_pieces.h"

#include <algorithm>
#include <cstring>

#include "core/limits.h"
#include "kernels/convert.h"
#include "kernels/low_rank.h"
#include "kernels/sparse_values.h"
#include "worker/client/pull_memory.h"

namespace tarn::worker {
namespace {

bool IsRange(std::span<const Key> keys) {
  // A quick check that rejects most lists that are not a range.
  if (keys.empty() || keys.back() - keys.front() != keys.size() - 1) return false;
  for (std::size_t i = 1; i < keys.size(); ++i)
    if (keys[i] != keys[i - 1] + 1) return false;
  return keys.back() >= keys.front();
}

void SetKeys(Buffer raw, KeyList* keys) {
  const auto list = static_cast<const Buffer&>(raw).as<Key>();
  if (IsRange(list)) {
    keys->codec = KeyCodec::kRange;
    keys->first_key = list.front();
  } else {
    keys->codec = KeyCodec::kRaw;
    keys->frame = std::move(raw);
  }
}

// Whether the parts are consecutive in the plan.
bool IsOneRun(std::span<const PlanRun> parts) {
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (parts[i].begin != parts[i - 1].begin + parts[i - 1].count) return false;
  return !parts.empty();
}

}  // namespace

std::uint32_t PieceRows(const TableSpec& spec, std::size_t piece_bytes) {
  // The keys of a dense table are usually sent as ranges.
  const std::size_t key = spec.kind == TableKind::kDense ? 0 : sizeof(Key);
  const std::size_t pulled = NeedsPulled(spec) ? CodecRowBytes(PulledCodec(spec), spec.dim) : 0;
  const std::size_t row =
      key + std::max(CodecRowBytes(spec.pull_codec, spec.dim), CodecRowBytes(spec.push_codec, spec.dim) + pulled);
  const std::size_t bytes = std::min(piece_bytes, limits::kFrameBytesMax);
  return static_cast<std::uint32_t>(std::max<std::size_t>(1, bytes / row));
}

std::vector<Piece> CutPieces(const Plan& plan, const RouteMap& routes, std::uint32_t rows_max) {
  const std::size_t shards = routes.endpoints.size();
  std::vector<Piece> pieces;
  pieces.reserve(std::min(plan.runs.size(), shards));
  constexpr std::uint32_t kNone = 0xffffffff;
  std::vector<std::uint32_t> open(shards, kNone);  // of each shard, the index of its piece that has room
  for (const PlanRun& run : plan.runs) {
    TARN_CHECK(run.partition.value < routes.owners.size(), "the plan and the route map have the same partitions");
    const ShardId shard = OwnerOf(routes, run.partition);
    std::uint32_t& at = open[shard.value];
    for (std::uint32_t taken = 0; taken < run.count;) {
      if (at == kNone) {
        at = static_cast<std::uint32_t>(pieces.size());
        pieces.push_back({.shard = shard, .parts = {}, .rows = 0});
      }
      Piece& piece = pieces[at];
      const std::uint32_t count = std::min(run.count - taken, rows_max - piece.rows);
      piece.parts.push_back({run.partition, run.begin + taken, count});
      piece.rows += count;
      taken += count;
      if (piece.rows == rows_max) at = kNone;
    }
  }
  return pieces;
}

KeyList PieceKeys(std::span<const Key> plan_keys, const Piece& piece) {
  KeyList keys;
  keys.count = piece.rows;
  keys.sections.reserve(piece.parts.size());
  for (const PlanRun& part : piece.parts) keys.sections.push_back({part.partition, part.count, Sequence(0)});
  if (IsOneRun(piece.parts)) {
    const auto run = plan_keys.subspan(piece.parts.front().begin, piece.rows);
    if (IsRange(run)) {
      keys.codec = KeyCodec::kRange;
      keys.first_key = run.front();
    } else {
      keys.frame = Buffer::CopyOf(run);
    }
    return keys;
  }
  Buffer raw = Buffer::Allocate(piece.rows * sizeof(Key));
  Key* to = raw.as_mutable<Key>().data();
  for (const PlanRun& part : piece.parts) {
    std::memcpy(to, plan_keys.data() + part.begin, part.count * sizeof(Key));
    to += part.count;
  }
  SetKeys(std::move(raw), &keys);
  return keys;
}

Buffer EncodeRows(const Buffer& rows, std::uint32_t dim, const Piece& piece, ValueCodec codec) {
  const std::size_t row_bytes = CodecRowBytes(codec, dim);
  if (codec == ValueCodec::kFp32 && IsOneRun(piece.parts))
    return rows.Slice(piece.parts.front().begin * row_bytes, piece.rows * row_bytes);
  const auto floats = rows.as<float>();
  Buffer values = Buffer::Allocate(piece.rows * row_bytes);
  std::byte* to = values.data();
  for (const PlanRun& part : piece.parts) {
    const std::size_t first = std::size_t{part.begin} * dim;
    kernels::EncodeRows(codec, dim, part.count, floats.data() + first, to);
    to += part.count * row_bytes;
  }
  return values;
}

namespace {

PushValues EncodeLowRank(const PushRows& push, std::uint32_t dim, const Piece& piece) {
  const auto rank = static_cast<std::uint32_t>(push.right.size() / dim);
  const Buffer left = EncodeRows(push.rows, rank, piece, ValueCodec::kFp32);
  if (!kernels::LowRankPays(piece.rows, dim, rank)) {  // each piece has a copy of the right factor
    Buffer rows = Buffer::Allocate(std::size_t{piece.rows} * dim * sizeof(float));
    kernels::MultiplyLowRank(piece.rows, dim, rank, left.as<float>().data(), push.right.data(),
                             rows.as_mutable<float>().data());
    return {ValueCodec::kFp32, std::move(rows)};
  }
  Buffer values = Buffer::Allocate(kernels::LowRankBytes(piece.rows, dim, rank));
  std::byte* to = kernels::EncodeRight(dim, rank, push.right.data(), values.data());
  std::memcpy(to, left.data(), left.size());
  return {ValueCodec::kLowRank, std::move(values)};
}

}  // namespace

PushValues EncodePush(const PushRows& push, const TableSpec& spec, const Piece& piece) {
  if (!push.right.empty()) return EncodeLowRank(push, spec.dim, piece);
  if (!IsOfWholePush(spec.push_codec))
    return {spec.push_codec, EncodeRows(push.rows, spec.dim, piece, spec.push_codec)};
  const Buffer whole = EncodeRows(push.rows, spec.dim, piece, ValueCodec::kFp32);
  if (spec.kind == TableKind::kSparse || spec.push_codec == ValueCodec::kLowRank) return {ValueCodec::kFp32, whole};
  const auto floats = whole.as<float>();
  const std::size_t bytes = kernels::SparseBytes(floats.size(), floats.data());
  if (bytes >= whole.size()) return {ValueCodec::kFp32, whole};
  Buffer values = Buffer::Allocate(bytes);
  kernels::EncodeSparse(floats.size(), floats.data(), values.data());
  return {ValueCodec::kTopK, std::move(values)};
}

PushValues RowByRow(const PushValues& push, std::uint32_t dim, std::size_t count) {
  if (!IsOfWholePush(push.codec)) return push;
  Buffer rows = Buffer::Allocate(count * dim * sizeof(float));
  const std::span<const std::byte> values(push.values.data(), push.values.size());
  float* const to = rows.as_mutable<float>().data();
  const Status status = push.codec == ValueCodec::kLowRank
                            ? kernels::DecodeLowRank(count, dim, limits::kPushRankMax, values, to)
                            : kernels::DecodeSparse(count * dim, values, to);
  TARN_CHECK(status.has_value(), "values that EncodePush made");
  return {ValueCodec::kFp32, std::move(rows)};
}

KeyList SelectKeys(const KeyList& keys, std::span<const std::uint32_t> which) {
  KeyList out;
  for (std::uint32_t i : which) out.count += keys.sections[i].count;
  Buffer raw = Buffer::Allocate(out.count * sizeof(Key));
  Key* to = raw.as_mutable<Key>().data();
  std::size_t offset = 0, next = 0;
  for (std::uint32_t i = 0; i < keys.sections.size() && next < which.size(); ++i) {
    const std::uint32_t count = keys.sections[i].count;
    if (which[next] == i) {
      for (std::uint32_t k = 0; k < count; ++k)
        *to++ = keys.codec == KeyCodec::kRange ? keys.first_key + offset + k : keys.frame.as<Key>()[offset + k];
      out.sections.push_back(keys.sections[i]);
      ++next;
    }
    offset += count;
  }
  SetKeys(std::move(raw), &out);
  return out;
}

Buffer SelectValues(const KeyList& keys, const Buffer& values, std::span<const std::uint32_t> which) {
  const std::size_t row_bytes = values.size() / keys.count;
  std::size_t rows = 0;
  for (std::uint32_t i : which) rows += keys.sections[i].count;
  Buffer out = Buffer::Allocate(rows * row_bytes);
  std::byte* to = out.data();
  std::size_t offset = 0, next = 0;
  for (std::uint32_t i = 0; i < keys.sections.size() && next < which.size(); ++i) {
    const std::size_t bytes = keys.sections[i].count * row_bytes;
    if (which[next] == i) {
      std::memcpy(to, values.data() + offset, bytes);
      to += bytes;
      ++next;
    }
    offset += bytes;
  }
  return out;
}

}  // namespace tarn::worker
