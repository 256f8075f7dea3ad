// Inside the frame codec: messages as FlatBuffers of schemas/wire.fbs and back. Only net/*.cc and tests include this.
#pragma once

#include <cstddef>
#include <span>

#include <flatbuffers/flatbuffers.h>

#include "core/error.h"
#include "core/message.h"

namespace tarn::net {

// Finishes the header of `message` (all but keys and values) in `builder`. Refuses what ReadHeader would refuse, by
// name, but mends texts for people: cuts what is too long and replaces what is no UTF-8.
Status BuildHeader(const Message& message, flatbuffers::FlatBufferBuilder* builder);

// The message whose header is in `bytes` (8-byte aligned, at most limits::kHeaderBytesMax), without keys and values.
// Verifies, then checks by the rules of the schema (core/codec/schema_check.h) before it allocates; relates fields to
// each other where no C++ value could hold what does not fit, and leaves the rest to CheckMeaning.
Expected<Message> ReadHeader(std::span<const std::byte> bytes);

// Whether the fields of a message agree with each other and with its payload; see Decode in net/frame.h.
Status CheckMeaning(const Message& message);

}  // namespace tarn::net
