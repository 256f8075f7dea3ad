#include "server/shard/data_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/limits.h"
#include "kernels/key_delta.h"
#include "kernels/low_rank.h"
#include "kernels/sparse_values.h"

namespace tarn::server {

namespace {

Status DecodeValues(const PushPart& push, const TableSpec& table, float* rows) {
  const std::span<const std::byte> bytes(push.values.data(), push.values.size());
  if (push.codec == ValueCodec::kTopK)
    return kernels::DecodeSparse(std::size_t{push.keys.count} * table.dim, bytes, rows);
  if (table.push_codec != ValueCodec::kLowRank)  // a few bytes of factors decode to many values
    return Fail(ErrorCode::kMalformed, fmt::format("low_rank, expected {}", Name(table.push_codec)));
  return kernels::DecodeLowRank(push.keys.count, table.dim, table.compression.rank, bytes, rows);
}

// Why the values of a push were not decoded: they are invalid; the shard did not know the sender when they arrived; or
// the decoded values of all tables of the push exceed a frame.
Status NotDecoded(const PushPart& push, const TableSpec& table) {
  std::vector<float> rows(std::size_t{push.keys.count} * table.dim);
  const Status status = DecodeValues(push, table, rows.data());
  if (status)
    return Fail(
        ErrorCode::kUnavailable,
        fmt::format("table '{}': the values were not decoded: the sender was not known when the push arrived, or "
                    "the decoded values of all its tables exceed {} bytes",
                    table.name, limits::kFrameBytesMax));
  return Fail(status.error().code, fmt::format("table '{}': {} rows of {}: {}", table.name, push.keys.count, table.dim,
                                               status.error().message));
}

Status CheckPulled(const PushPart& push, const TableSpec& table) {
  const UpdateRule& rule = *FindUpdateRule(table.optimizer.kind);
  const bool needed = rule.needs_pulled && push.action == PushAction::kStep;
  if (push.pulled.has_value() == needed) return {};
  if (needed)
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("table '{}': a push without the rows as they were pulled, which {} needs", table.name, rule.name));
  return Fail(ErrorCode::kMalformed,
              fmt::format("table '{}': pulled rows with a push, which {} does not need", table.name, rule.name));
}

// Checks assignments and deletions.
Status CheckAction(const PushPart& push, const TableSpec& table) {
  if (push.action == PushAction::kStep) return {};
  if (push.codec != ValueCodec::kFp32)
    return Fail(ErrorCode::kMalformed, fmt::format("value codec {}: expected fp32 for an assignment or a deletion",
                                                   static_cast<int>(push.codec)));
  if (push.action == PushAction::kDelete && table.kind == TableKind::kDense)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("table '{}': rows of a dense table cannot be deleted; assign their values", table.name));
  return {};
}

Status CheckPulledCodec(ValueCodec codec) {
  if (IsForPulls(codec)) return {};
  return Fail(ErrorCode::kMalformed, fmt::format("value codec {}: not for pulled rows", static_cast<int>(codec)));
}

}  // namespace

void DecodeDelta(KeyList* list) {
  Buffer* const frame = &list->frame;
  if (list->codec != KeyCodec::kDelta || list->count > limits::kKeysPerMessageMax ||
      frame->size() < DeltaBytesMin(list->count))
    return;
  Buffer keys = Buffer::Allocate(list->count * sizeof(Key));
  if (!kernels::DecodeKeys(list->count, {frame->data(), frame->size()}, keys.as_mutable<Key>().data())) return;
  list->codec = KeyCodec::kRaw;
  *frame = std::move(keys);
}

void DecodeWholePush(const TableSpec& table, PushPart* push) {
  if (!IsOfWholePush(push->codec)) return;
  const std::size_t n = std::size_t{push->keys.count} * table.dim;
  if (n * sizeof(float) > limits::kFrameBytesMax) return;
  Buffer rows = Buffer::Allocate(n * sizeof(float));
  if (!DecodeValues(*push, table, rows.as_mutable<float>().data())) return;
  push->codec = ValueCodec::kFp32;
  push->values = std::move(rows);
}

Expected<std::span<const Key>> ReadKeys(const KeyList& list, std::size_t row_bytes, std::vector<Key>* scratch) {
  const Buffer& frame = list.frame;
  std::uint64_t in_sections = 0;
  for (const Section& section : list.sections) in_sections += section.count;
  if (in_sections != list.count)
    return Fail(ErrorCode::kMalformed,
                fmt::format("{} keys in the sections, {} in the message", in_sections, list.count));
  if (list.count * std::max(row_bytes, sizeof(Key)) > limits::kFrameBytesMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("{} rows of {} bytes: a frame has at most {} bytes", list.count,
                                                  row_bytes, limits::kFrameBytesMax));
  if (list.codec == KeyCodec::kRaw) {
    if (frame.size() != list.count * sizeof(Key))
      return Fail(ErrorCode::kMalformed, fmt::format("{} bytes of keys, expected {} for {} keys", frame.size(),
                                                     list.count * sizeof(Key), list.count));
    return frame.as<Key>();
  }
  if (list.codec == KeyCodec::kHeld)
    return Fail(ErrorCode::kUnknownKeys,
                fmt::format("the list of {} keys numbered {}: not held", list.count, list.list));
  if (list.codec == KeyCodec::kDelta)
    return Fail(ErrorCode::kMalformed,
                fmt::format("{} bytes of delta-coded keys could not be decoded to {} keys", frame.size(), list.count));
  if (list.codec != KeyCodec::kRange)
    return Fail(ErrorCode::kMalformed, fmt::format("key codec {}: unknown", static_cast<int>(list.codec)));
  if (!frame.empty())
    return Fail(ErrorCode::kMalformed, fmt::format("{} bytes of keys with a range: expected none", frame.size()));
  if (list.count != 0 && list.first_key > std::numeric_limits<Key>::max() - (list.count - 1))
    return Fail(ErrorCode::kMalformed, fmt::format("{} keys from {} on: beyond 64 bits", list.count, list.first_key));
  scratch->resize(list.count);
  std::iota(scratch->begin(), scratch->end(), list.first_key);
  return std::span<const Key>(*scratch);
}

Status CheckPush(const PushPart& push, const TableSpec& table) {
  if (IsOfWholePush(push.codec)) return NotDecoded(push, table);
  if (push.codec > ValueCodec::kLowRank)
    return Fail(ErrorCode::kMalformed, fmt::format("value codec {}: unknown", static_cast<int>(push.codec)));
  TARN_RETURN_IF_ERROR(CheckAction(push, table));
  TARN_RETURN_IF_ERROR(CheckPulled(push, table));
  if (push.pulled) TARN_RETURN_IF_ERROR(CheckPulledCodec(*push.pulled));
  const std::size_t expected = push.keys.count * PushRowBytes(table, push);
  if (push.values.size() != expected)
    return Fail(ErrorCode::kMalformed,
                fmt::format("table '{}': {} bytes of values, expected {} for {} rows of {}", table.name,
                            push.values.size(), expected, push.keys.count, table.dim));
  for (const Section& section : push.keys.sections)
    if (section.sequence.value == 0)
      return Fail(ErrorCode::kMalformed, fmt::format("partition {}: a push with sequence 0", section.partition.value));
  return {};
}

Status CheckPull(const PullPart& pull) { return CheckPulledCodec(pull.codec); }

}  // namespace tarn::server
