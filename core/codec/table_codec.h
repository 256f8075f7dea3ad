// A TableSpec as the FlatBuffer that travels in messages and lies in manifests (schemas/wire.fbs), and back: the one
// place that knows both. Included only by the sources that convert: net/header_*.cc and core/codec/manifest_codec.cc.
// Pure functions, any thread.
#pragma once

#include "core/error.h"
#include "core/table/table_spec.h"
#include "wire_generated.h"

namespace tarn {

// Whether the last enumerators are the same number: the schema's and core's must be.
template <typename Wire, typename Core>
constexpr bool SameEnd(Wire wire_last, Core core_last) {
  return static_cast<unsigned>(wire_last) == static_cast<unsigned>(core_last);
}

// Appends the table to the buffer under construction; its name is the caller's to bound.
flatbuffers::Offset<wire::TableSpec> EncodeTable(flatbuffers::FlatBufferBuilder* builder, const TableSpec& spec);

// `table`: verified, or null. Checks that its parts are there, the enumerators, and the bytes of the name; not the
// ranges, which are Validate's (core/table/table_spec.h). kMalformed or kTooLarge, naming the field as
// "table.optimizer.kind".
Expected<TableSpec> DecodeTable(const wire::TableSpec* table);

}  // namespace tarn
