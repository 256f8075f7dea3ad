// Messages as bytes: `Encode` makes the frames of a message, `Decode` makes the message of frames that anybody may
// have sent. schemas/wire.fbs defines the header; this file defines what stands around it.
//
// A message is one frame ("packed", total up to limits::kSmallMessageBytes) or three ("split"):
//
//   packed   [prefix | header | keys | values]    each part at the next multiple of 8, zeros between
//   split    [prefix | header] [keys] [values]    the last two may be empty
//
// Up to limits::kBundleMessagesMax packed messages may travel together in one frame (a "bundle", of up to
// limits::kBundleBytesMax); each stands for itself:
//
//   bundle   [prefix | size, 0 | message | size, 0 | message ...]    32-bit sizes; each message padded to 8 with zeros
//
// All integers are little-endian. The prefix says where the parts end; the values are what is left.
//
// Threads: the functions have no state; Encode's frames share the bytes of message.keys and message.values.
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

namespace flatbuffers {
class FlatBufferBuilder;
}

namespace tarn::net {

// The first 16 bytes of a message. The magic number and the version stand there in every version of the protocol, for
// ever, so that nodes of different versions can tell each other; all else belongs to the version.
struct Prefix {
  std::uint32_t magic = 0;         // kMagic
  std::uint8_t version = 0;        // limits::kProtocolVersion
  std::uint8_t kind = 0;           // a FrameKind
  std::uint16_t reserved = 0;      // 0
  std::uint32_t header_bytes = 0;  // of the FlatBuffer; of a bundle: of all that is behind the prefix
  std::uint32_t keys_bytes = 0;    // of the keys, in this frame or the next; of a bundle: its messages
};
static_assert(sizeof(Prefix) == 16);

inline constexpr std::uint32_t kMagic = 0x4e524154;                                      // "TARN"
enum class FrameKind : std::uint8_t { kSplit = 1, kPacked = 2, kShm = 3, kBundle = 4 };  // kShm: net/shm_door.h

// Bytes of somebody else, at any alignment.
struct FrameView {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

// Who holds the frames of a message that is being decoded.
class FrameOwner {
 public:
  virtual ~FrameOwner() = default;
  // The bytes of a frame, aligned to 8 at least, to be kept: the message's from now on. Empty if they must be copied.
  virtual Buffer Take(std::size_t frame) = 0;
};

// The protocol version of the message that begins with `first`; none if that is no message of tarn.
std::optional<std::uint32_t> VersionOf(const FrameView& first);

// Encodes one message after the other, in memory that it keeps. Not thread-safe.
class Encoder {
 public:
  Encoder();
  ~Encoder();

  // Makes the header of `message`, which must stay until the frames are made. Refuses what Decode would refuse, with an
  // error that names the field; texts for people (ErrorReply.message, Shutdown.reason, ...) are cut to
  // limits::kTextBytesMax instead.
  Status Begin(const Message& message);
  // Of the message as a packed frame; 0: it is too large for that.
  std::size_t packed_bytes() const { return packed_bytes_; }
  // Writes the packed frame.
  void Pack(std::byte* to) const;
  // The message as three frames, of which the last two share its payload.
  std::vector<Buffer> Split() const;

 private:
  std::span<const std::uint8_t> header() const;

  std::unique_ptr<flatbuffers::FlatBufferBuilder> builder_;
  const Message* message_ = nullptr;
  std::size_t packed_bytes_ = 0;
};

// The frames of `message`, in order: one or limits::kFramesMax. Errors as of Encoder::Begin.
Expected<std::vector<Buffer>> Encode(const Message& message);

// Makes a bundle, in memory that it keeps. Not thread-safe.
class BundleWriter {
 public:
  // Where the next packed message goes, of so many bytes; null if there is no room for it.
  std::byte* Place(std::size_t packed_bytes);
  std::size_t messages() const { return messages_; }
  // The frame: a bundle, or a packed message if it is the only one. Good until the next Clear. Of one message at least.
  FrameView Finish();
  void Clear();

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = sizeof(Prefix);
  std::size_t messages_ = 0;
};

// How many messages a frame stands for: more than one if it is a bundle.
std::size_t MessagesIn(const FrameView& frame);

// The messages of a bundle.
struct BundledFrames {
  std::span<const FrameView> views() const { return {frames.data(), count}; }
  std::array<FrameView, limits::kBundleMessagesMax> frames;
  std::size_t count = 0;
};
// Whether `frame` is a bundle; then its messages. Errors as of Decode.
bool IsBundle(const FrameView& frame);
Expected<BundledFrames> SplitBundle(const FrameView& frame);

// The message in `frames`. Its payload is copied once, into aligned buffers, or taken from the owner, if there is one:
// `owner->Take(i)` is frame i. Any bytes may be given. An error is
// kWrongJob (another protocol version, whatever else the frames hold), kTooLarge (over a limit) or kMalformed, and its
// message names the field, the value and what was expected. What is returned holds to:
//   - every enum has a known value, every list and string is within core/limits.h;
//   - keys: 8 x count bytes (kRaw), as many as delta-coded ones may have (kDelta), or none (kRange, and the range does
//     not overflow; kHeld, and there is a number); section counts add up to count;
//     partitions are below 2^limits::kPartitionBitsMax;
//   - values: count rows in the codec, of some dim in 1..limits::kRowDimMax. The receiver compares with its table's
//   dim; kTopK, of pushes alone: as many bytes as those rows may have, which the receiver decodes;
//   - a blob's piece has bytes, limits::kBlobPieceBytesMax at most, and lies within its total;
//   - a view's owners are 2^partition_bits shards that have endpoints (or there are none yet).
Expected<Message> Decode(std::span<const FrameView> frames, FrameOwner* owner = nullptr);

// Decode(Encode(m)), for frames that are at hand as buffers.
Expected<Message> Decode(std::span<const Buffer> frames);

}  // namespace tarn::net
