// Cuts the rows of a plan into pieces, which fit in a message, and moves keys and values between a plan and a piece.
//
// A piece is for one shard and has at most one part of each partition (rule E1). Over all pieces, the parts of a
// partition are in the order of the plan. Internal to worker/. Functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/message.h"
#include "core/view.h"
#include "worker/client/plan.h"

namespace tarn::worker {

struct Piece {
  ShardId shard;
  std::vector<PlanRun> parts;  // rows [begin, begin + count) of the plan each
  std::uint32_t rows = 0;
};

// Rows that a piece may have: about `piece_bytes` of keys and values, at least one. The same for pulls and pushes, so
// that a push of pulled rows has the same pieces as the pull and need not send its keys again (rule W3).
std::uint32_t PieceRows(const TableSpec& spec, std::size_t piece_bytes);

// In the order of their first rows.
std::vector<Piece> CutPieces(const Plan& plan, const RouteMap& routes, std::uint32_t rows_max);

// The keys of a piece; the sections' sequences are left 0. Consecutive keys (n, n + 1, ...) need no frame.
KeyList PieceKeys(std::span<const Key> plan_keys, const Piece& piece);

// Encodes those of `rows` (fp32, the plan's order) that belong to the piece. With kFp32 and parts that are consecutive
// in the plan, the result shares the memory of `rows`; otherwise it is a copy.
Buffer EncodeRows(const Buffer& rows, std::uint32_t dim, const Piece& piece, ValueCodec codec);

// The rows of a push, fp32, in the plan's order. If `right` is not empty (only with kLowRank), `rows` is the left
// factor and `right` the right factor (kernels/low_rank.h).
struct PushRows {
  Buffer rows;
  std::vector<float> right = {};
};

// The rows that a piece pushes, and their codec: the table's push_codec. kFp32 replaces kTopK and kLowRank if it is not
// larger, kLowRank without a right factor, and always kTopK of a sparse table, which pushes only the selected rows
// (rule W5).
struct PushValues {
  ValueCodec codec = ValueCodec::kFp32;
  Buffer values;
};
PushValues EncodePush(const PushRows& push, const TableSpec& spec, const Piece& piece);

// Converts the values of `count` rows made by EncodePush to a codec in which each row is encoded separately.
PushValues RowByRow(const PushValues& push, std::uint32_t dim, std::size_t count);

// Extracts the sections `which` (ascending) of one table of a message: keys and values.
KeyList SelectKeys(const KeyList& keys, std::span<const std::uint32_t> which);
Buffer SelectValues(const KeyList& keys, const Buffer& values, std::span<const std::uint32_t> which);

}  // namespace tarn::worker
