// Inside the frame codec: core messages to FlatBuffers and back. Only net/*.cc include this.
#pragma once

#include <cstddef>
#include <span>

#include <flatbuffers/flatbuffers.h>

#include "core/error.h"
#include "core/message.h"

namespace tarn::net {

// Finishes the header of `message` (all but keys and values) in `builder`. Lists and strings over core/limits.h are
// refused by name, texts for people are cut.
Status BuildHeader(const Message& message, flatbuffers::FlatBufferBuilder* builder);

// The message whose header is in `bytes` (8-byte aligned, at most limits::kHeaderBytesMax), without keys and values.
// Verifies, then checks enums and lengths before it allocates for them; does not relate fields to each other.
Expected<Message> ReadHeader(std::span<const std::byte> bytes);

// Whether the fields of a message agree with each other and with its payload; see Decode in net/frame.h.
Status CheckMeaning(const Message& message);

}  // namespace tarn::net
