// What data messages must fulfil before they touch a row (rule E3, the last part): counts, bytes, codecs. Pure
// functions of the message and the table; whether keys lie in their partitions is Store::CheckKeys.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/message.h"
#include "core/table/table_spec.h"

namespace tarn::server {

// Delta-coded keys as they are: kRaw. Those that are not sound stay what they are, for ReadKeys to refuse.
void DecodeDelta(KeyList* list, Buffer* frame);

// The values of a push in kTopK (rule W5) as the rows that they stand for: kFp32. Those that are not sound, or are of
// more rows than a frame may have, stay what they are, for CheckPush to refuse.
void DecodeTopK(const TableSpec& table, Push* push, Buffer* values);

// The keys of a message, from its keys frame or, for a range, written to `scratch`. kMalformed if the frame or the
// sections do not match the count, kTooLarge if `count` rows of `row_bytes` exceed a frame, kUnknownKeys if they are
// those of a list still: it is not held.
Expected<std::span<const Key>> ReadKeys(const KeyList& list, const Buffer& frame, std::size_t row_bytes,
                                        std::vector<Key>* scratch);

// kMalformed: an unknown codec, values that do not match the count, a sequence of 0.
Status CheckPush(const Push& push, const Buffer& values, const TableSpec& table);
Status CheckPull(const Pull& pull);

// Bytes of one row as it travels.
inline std::size_t RowBytes(const TableSpec& table, ValueCodec codec) { return CodecRowBytes(codec, table.dim); }

}  // namespace tarn::server
