// Encoding of messages: `Encode` converts a message to frames, `Decode` converts untrusted frames to a message.
// schemas/wire.fbs defines the header; this file defines the format around it.
//
// A message is one frame ("packed", total up to limits::kSmallMessageBytes) or three ("split"):
//
//   packed   [prefix | header | keys | values]    each part at the next multiple of 8, zeros between
//   split    [prefix | header] [keys] [values]    the last two may be empty
//
// Up to limits::kBundleMessagesMax packed messages may be combined in one frame (a "bundle", of up to
// limits::kBundleBytesMax); they are independent of each other:
//
//   bundle   [prefix | size, 0 | message | size, 0 | message ...]    32-bit sizes; each message padded to 8 with zeros
//
// All integers are little-endian. The prefix has the sizes of header and keys; the values are the rest.
//
// Keys and values are those of all tables of the message (net/payload.h).
//
// Threads: the functions have no state. The frames of a split message share the bytes of its payload where they can; a
// packed frame is a copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/limits.h"
#include "core/message.h"
#include "net/payload.h"

namespace flatbuffers {
class FlatBufferBuilder;
}

namespace tarn::net {

// The first 16 bytes of a message. The magic number and the version are at these offsets in every version of the
// protocol, so that nodes of different versions can report the mismatch; the rest depends on the version.
struct Prefix {
  std::uint32_t magic = 0;         // kMagic
  std::uint8_t version = 0;        // limits::kProtocolVersion
  std::uint8_t kind = 0;           // a FrameKind
  std::uint16_t reserved = 0;      // 0
  std::uint32_t header_bytes = 0;  // size of the FlatBuffer; for a bundle, of everything after the prefix
  std::uint32_t keys_bytes = 0;    // size of the keys (in this frame or the next); for a bundle, its number of messages
};
static_assert(sizeof(Prefix) == 16);

inline constexpr std::uint32_t kMagic = 0x4e524154;                                      // "TARN"
enum class FrameKind : std::uint8_t { kSplit = 1, kPacked = 2, kShm = 3, kBundle = 4 };  // kShm: net/shm_handshake.h

// The protocol version of the message that begins with `first`; nullopt if it does not begin with tarn's magic number.
std::optional<std::uint32_t> VersionOf(const FrameView& first);

// Encodes messages one after the other, reusing its memory. Not thread-safe.
class Encoder {
 public:
  Encoder();
  ~Encoder();

  // Makes the header of `message`, which must stay valid until the frames are made. Rejects a message that Decode would
  // reject, with an error that names the field; texts for users (ErrorReply.message, Shutdown.reason, ...) are
  // truncated to limits::kTextBytesMax instead.
  Status Begin(const Message& message);
  // Size of the message as a packed frame; 0: too large for one.
  std::size_t packed_bytes() const { return packed_bytes_; }
  // Writes the packed frame, packed_bytes() bytes. Requires packed_bytes() != 0.
  void Pack(std::byte* to) const;
  // The message as three frames, of which the last two share its payload where they can.
  std::vector<Buffer> Split() const;

 private:
  std::span<const std::uint8_t> header() const;

  std::unique_ptr<flatbuffers::FlatBufferBuilder> builder_;
  PayloadFrame keys_, values_;
  std::size_t packed_bytes_ = 0;
};

// The frames of `message`, in order: one or limits::kFramesMax. Errors as of Encoder::Begin.
Expected<std::vector<Buffer>> Encode(const Message& message);

// Makes bundles, reusing its memory. Not thread-safe.
class BundleWriter {
 public:
  // Memory for the next packed message of that size; null if there is no room.
  std::byte* Place(std::size_t packed_bytes);
  std::size_t messages() const { return messages_; }
  // The frame: a bundle, or a packed message if there is only one. Valid until the next Clear. Requires at least one
  // message.
  FrameView Finish();
  void Clear();

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = sizeof(Prefix);
  std::size_t messages_ = 0;
};

// The number of messages in a frame that this process has encoded: more than one if it is a bundle. Verifies nothing.
std::size_t MessagesIn(const FrameView& frame);

// The messages of a bundle.
struct BundledFrames {
  std::span<const FrameView> views() const { return {frames.data(), count}; }
  std::array<FrameView, limits::kBundleMessagesMax> frames;
  std::size_t count = 0;
};
// Whether the frame is a bundle of this protocol version, by its prefix.
bool IsBundle(const FrameView& frame);
// The messages of a bundle, as views into `frame`, which are not decoded yet. Errors as of Decode.
Expected<BundledFrames> SplitBundle(const FrameView& frame);

// The message in `frames`. Its payload is copied once, into aligned buffers, or transferred from the owner, if there is
// one: `owner->Take(i)` is frame i. The bytes may be arbitrary. An error is kWrongJob (another protocol version,
// whatever else the frames hold), kTooLarge (over a limit) or kMalformed, and its message names the field, the value
// and what was expected. A returned message satisfies:
//   - every enum has a known value, every list and string is within core/limits.h;
//   - the tables' bytes fill the frames of keys and values;
//   - keys of a table: 8 x count bytes (kRaw), as many as delta-coded ones may have (kDelta), or none (kRange, and the
//     range does not overflow; kHeld, and there is a number); section counts add up to count; partitions are below
//     2^limits::kPartitionBitsMax;
//   - values of a table: count rows in the codec and, in a push with `pulled`, count further rows in that codec, all of
//     one dim in 1..limits::kRowDimMax, which the receiver compares with its table's. kTopK and kLowRank (pushes only):
//     a number of bytes that such rows may have; the receiver checks the bytes when it decodes them. kDelete: none;
//   - a blob's piece has bytes, limits::kBlobPieceBytesMax at most, and lies within its total;
//   - a view's owners are 2^partition_bits shards that have endpoints (or there are none yet).
Expected<Message> Decode(std::span<const FrameView> frames, FrameOwner* owner = nullptr);

// The same for frames in buffers.
Expected<Message> Decode(std::span<const Buffer> frames);

}  // namespace tarn::net
