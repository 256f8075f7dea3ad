// Inside the frame codec: reads and writes messages as FlatBuffers of schemas/wire.fbs. Only net/*.cc and tests include
// this.
#pragma once

#include <cstddef>
#include <span>

#include <flatbuffers/flatbuffers.h>

#include "core/error.h"
#include "core/message.h"
#include "net/payload.h"

namespace tarn::net {

// Writes the header of `message` (all but its payload, net/payload.h) to `builder`. Returns the errors that ReadHeader
// would return, but corrects texts for users: truncates long ones and replaces invalid UTF-8.
Status BuildHeader(const Message& message, flatbuffers::FlatBufferBuilder* builder);

// Reads the message with the header `bytes` (8-byte aligned, at most limits::kHeaderBytesMax) and all of its payload.
// Verifies the buffer and applies the rules of the schema (core/codec/schema_check.h) before it allocates. Of
// the relations between fields it checks those that a Message cannot represent (a push has as many versions as
// sections); CheckMeaning checks the others. `*message` must be default-constructed; after an error it may be partly
// filled.
Status ReadHeader(std::span<const std::byte> bytes, PayloadReader* payload, Message* message);

// Whether the fields of a message agree with each other and with its payload; see Decode in net/frame.h.
Status CheckMeaning(const Message& message);

}  // namespace tarn::net
