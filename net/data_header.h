// Inside the frame codec: reads and writes the headers of the data plane's messages as FlatBuffers of schemas/data.fbs.
// Hand-written for speed, because these messages are frequent. Only net/header.cc includes this.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <type_traits>

#include "core/error.h"
#include "core/message.h"
#include "data_generated.h"
#include "net/payload.h"

namespace tarn::net {

// The FlatBuffers table of a message of the data plane: DataTable<Pull> is wire::Pull.
template <typename Body>
struct DataTable;
template <>
struct DataTable<Pull> : std::type_identity<wire::Pull> {};
template <>
struct DataTable<PullReply> : std::type_identity<wire::PullReply> {};
template <>
struct DataTable<Push> : std::type_identity<wire::Push> {};
template <>
struct DataTable<PushAck> : std::type_identity<wire::PushAck> {};
template <>
struct DataTable<Prefetch> : std::type_identity<wire::Prefetch> {};

template <typename Body>
concept DataMessage = requires { typename DataTable<Body>::type; };

// Appends message `m` to the buffer under construction. Sets `status` to kMalformed if a pull, a push or a reply has no
// table, and to kTooLarge if `m` has more than limits::kMessageTablesMax tables or limits::kPartitionsMax sections; the
// error names the field.
flatbuffers::Offset<void> WriteData(flatbuffers::FlatBufferBuilder* builder, const Pull& m, Status* status);
flatbuffers::Offset<void> WriteData(flatbuffers::FlatBufferBuilder* builder, const PullReply& m, Status* status);
flatbuffers::Offset<void> WriteData(flatbuffers::FlatBufferBuilder* builder, const Push& m, Status* status);
flatbuffers::Offset<void> WriteData(flatbuffers::FlatBufferBuilder* builder, const PushAck& m, Status* status);
flatbuffers::Offset<void> WriteData(flatbuffers::FlatBufferBuilder* builder, const Prefetch& m, Status* status);

// Reads the message of a verified table, with its keys and values from the payload. Checks enumerators, limits, missing
// fields, and that the payload has the bytes. After an error `status` is kMalformed or kTooLarge with the name of the
// field, and the message is undefined.
void ReadData(const wire::Pull& m, PayloadReader* payload, Pull* out, Status* status);
void ReadData(const wire::PullReply& m, PayloadReader* payload, PullReply* out, Status* status);
void ReadData(const wire::Push& m, PayloadReader* payload, Push* out, Status* status);
void ReadData(const wire::PushAck& m, PayloadReader* payload, PushAck* out, Status* status);
void ReadData(const wire::Prefetch& m, PayloadReader* payload, Prefetch* out, Status* status);

}  // namespace tarn::net
