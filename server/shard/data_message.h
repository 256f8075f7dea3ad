// Checks of data messages before they access a row (rule E3, the last part): counts, bytes, codecs. Pure functions of
// the message and the table; whether keys lie in their partitions is Store::CheckKeys.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/message.h"
#include "core/table/table_spec.h"

namespace tarn::server {

// Decodes delta-coded keys to kRaw. Invalid ones are left unchanged; ReadKeys rejects them.
void DecodeDelta(KeyList* list);

// Decodes the values of a push that are encoded together (IsOfWholePush; rule W5) to full kFp32 rows. Values that are
// invalid, or that exceed a frame when decoded, are left unchanged; CheckPush rejects them.
void DecodeWholePush(const TableSpec& table, PushPart* push);

// The keys of a list, from its frame or, for a range, written to `scratch`. kMalformed if the frame or the sections do
// not match the count, kTooLarge if `count` rows of `row_bytes` exceed a frame, kUnknownKeys if they are
// still a list number: the list is not held.
Expected<std::span<const Key>> ReadKeys(const KeyList& list, std::size_t row_bytes, std::vector<Key>* scratch);

// kMalformed: an unknown codec, values that do not match the count, a sequence of 0, an assignment or a deletion in
// another codec than fp32, pulled rows that the table's rule does not need. kInvalidArgument: pulled rows that the rule
// needs are missing, or rows of a dense table are to be deleted. kUnavailable: the values are valid but were not
// decoded, because the sender was unknown when they arrived, or because the values of all tables exceed a frame.
Status CheckPush(const PushPart& push, const TableSpec& table);
// kMalformed: the codec is not one for pulls.
Status CheckPull(const PullPart& pull);

// Encoded size of one row.
inline std::size_t RowBytes(const TableSpec& table, ValueCodec codec) { return CodecRowBytes(codec, table.dim); }
// Bytes of the values of a push for each of its keys: the gradient, and the pulled row if it has them.
inline std::size_t PushRowBytes(const TableSpec& table, const PushPart& push) {
  if (push.action == PushAction::kDelete) return 0;
  return RowBytes(table, push.codec) + (push.pulled ? RowBytes(table, *push.pulled) : 0);
}

}  // namespace tarn::server
