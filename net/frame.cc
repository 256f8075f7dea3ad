#include "net/frame.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "core/limits.h"
#include "net/header.h"

namespace tarn::net {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire form is the memory of a little-endian machine");

constexpr std::size_t kPrefixBytes = sizeof(Prefix);

constexpr std::size_t PadTo8(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

// Where the parts of a packed frame begin.
struct Layout {
  std::size_t keys = 0;
  std::size_t values = 0;
};
Layout PackedLayout(std::size_t header_bytes, std::size_t keys_bytes) {
  const std::size_t keys = kPrefixBytes + PadTo8(header_bytes);
  return {.keys = keys, .values = keys + PadTo8(keys_bytes)};
}

Prefix MakePrefix(FrameKind kind, std::size_t header_bytes, std::size_t keys_bytes) {
  return {.magic = kMagic,
          .version = static_cast<std::uint8_t>(limits::kProtocolVersion),
          .kind = static_cast<std::uint8_t>(kind),
          .reserved = 0,
          .header_bytes = static_cast<std::uint32_t>(header_bytes),
          .keys_bytes = static_cast<std::uint32_t>(keys_bytes)};
}

void CopyInto(Buffer* frame, std::size_t offset, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(frame->data() + offset, from, bytes);
}

Status TooLarge(std::string_view what, std::size_t bytes, std::size_t limit) {
  return Fail(ErrorCode::kTooLarge, fmt::format("{}: {} bytes, expected at most {}", what, bytes, limit));
}

Status CheckSizes(std::size_t header_bytes, std::size_t keys_bytes, std::size_t values_bytes) {
  if (header_bytes > limits::kHeaderBytesMax) return TooLarge("header", header_bytes, limits::kHeaderBytesMax);
  if (keys_bytes > limits::kFrameBytesMax) return TooLarge("keys frame", keys_bytes, limits::kFrameBytesMax);
  if (values_bytes > limits::kFrameBytesMax) return TooLarge("values frame", values_bytes, limits::kFrameBytesMax);
  const std::size_t total = kPrefixBytes + header_bytes + keys_bytes + values_bytes;
  if (total > limits::kMessageBytesMax) return TooLarge("message", total, limits::kMessageBytesMax);
  return {};
}

Buffer Pack(std::span<const std::uint8_t> header, const Buffer& keys, const Buffer& values) {
  const Layout layout = PackedLayout(header.size(), keys.size());
  Buffer frame = Buffer::Allocate(layout.values + values.size());
  const Prefix prefix = MakePrefix(FrameKind::kPacked, header.size(), keys.size());
  CopyInto(&frame, 0, &prefix, kPrefixBytes);
  CopyInto(&frame, kPrefixBytes, header.data(), header.size());
  std::memset(frame.data() + kPrefixBytes + header.size(), 0, PadTo8(header.size()) - header.size());
  CopyInto(&frame, layout.keys, keys.data(), keys.size());
  std::memset(frame.data() + layout.keys + keys.size(), 0, PadTo8(keys.size()) - keys.size());
  CopyInto(&frame, layout.values, values.data(), values.size());
  return frame;
}

// A frame's prefix, known to fit the frame.
Expected<Prefix> ReadPrefix(const FrameView& frame) {
  if (frame.size < kPrefixBytes)
    return Fail(ErrorCode::kMalformed, fmt::format("prefix: {} bytes, expected {}", frame.size, kPrefixBytes));
  Prefix prefix;
  std::memcpy(&prefix, frame.data, kPrefixBytes);
  if (prefix.magic != kMagic)
    return Fail(ErrorCode::kMalformed, fmt::format("prefix.magic: {:#010x}, expected {:#010x}", prefix.magic, kMagic));
  if (prefix.reserved != 0)
    return Fail(ErrorCode::kMalformed, fmt::format("prefix.reserved: {}, expected 0", prefix.reserved));
  return prefix;
}

Status CheckZeros(const FrameView& frame, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i)
    if (frame.data[i] != std::byte{0})
      return Fail(ErrorCode::kMalformed, fmt::format("padding: not zero at byte {} of the frame", i));
  return {};
}

struct Parts {
  FrameView header, keys, values;
};

Expected<Parts> SplitPacked(const FrameView& frame, const Prefix& prefix) {
  if (frame.size > limits::kSmallMessageBytes)
    return std::unexpected(TooLarge("packed frame", frame.size, limits::kSmallMessageBytes).error());
  const Layout layout = PackedLayout(prefix.header_bytes, prefix.keys_bytes);
  if (layout.values > frame.size)
    return Fail(ErrorCode::kMalformed, fmt::format("prefix: header of {} and keys of {} bytes, in a frame of {}",
                                                   prefix.header_bytes, prefix.keys_bytes, frame.size));
  TARN_RETURN_IF_ERROR(CheckZeros(frame, kPrefixBytes + prefix.header_bytes, layout.keys));
  TARN_RETURN_IF_ERROR(CheckZeros(frame, layout.keys + prefix.keys_bytes, layout.values));
  return Parts{.header = {frame.data + kPrefixBytes, prefix.header_bytes},
               .keys = {frame.data + layout.keys, prefix.keys_bytes},
               .values = {frame.data + layout.values, frame.size - layout.values}};
}

Expected<Parts> SplitFrames(std::span<const FrameView> frames, const Prefix& prefix) {
  if (frames[0].size - kPrefixBytes != prefix.header_bytes)
    return Fail(ErrorCode::kMalformed, fmt::format("prefix.header_bytes: {}, expected {} (the rest of the frame)",
                                                   prefix.header_bytes, frames[0].size - kPrefixBytes));
  if (frames[1].size != prefix.keys_bytes)
    return Fail(ErrorCode::kMalformed,
                fmt::format("prefix.keys_bytes: {}, expected {} (the keys frame)", prefix.keys_bytes, frames[1].size));
  return Parts{.header = {frames[0].data + kPrefixBytes, prefix.header_bytes}, .keys = frames[1], .values = frames[2]};
}

Expected<Parts> FindParts(std::span<const FrameView> frames) {
  if (const auto version = frames.empty() ? std::nullopt : VersionOf(frames[0]);
      version && *version != limits::kProtocolVersion)
    return Fail(ErrorCode::kWrongJob,
                fmt::format("prefix.version: protocol {}, expected {}", *version, limits::kProtocolVersion));
  if (frames.empty() || frames.size() > limits::kFramesMax)
    return Fail(frames.empty() ? ErrorCode::kMalformed : ErrorCode::kTooLarge,
                fmt::format("message: {} frames, expected 1 or {}", frames.size(), limits::kFramesMax));
  Expected<Prefix> prefix = ReadPrefix(frames[0]);
  if (!prefix) return std::unexpected(std::move(prefix).error());
  const bool packed = prefix->kind == static_cast<std::uint8_t>(FrameKind::kPacked);
  if (!packed && prefix->kind != static_cast<std::uint8_t>(FrameKind::kSplit))
    return Fail(ErrorCode::kMalformed, fmt::format("prefix.kind: {}, expected 1 (split) or 2 (packed)", prefix->kind));
  const std::size_t expected = packed ? 1 : limits::kFramesMax;
  if (frames.size() != expected)
    return Fail(ErrorCode::kMalformed,
                fmt::format("message: {} frames of kind {}, expected {}", frames.size(), prefix->kind, expected));
  return packed ? SplitPacked(frames[0], *prefix) : SplitFrames(frames, *prefix);
}

// FlatBuffers needs its bytes 8-byte aligned, which the network does not give, and unchanged from the check on, which
// memory shared with the sender does not: so they are copied.
Expected<Message> ReadCopy(const FrameView& header) {
  alignas(8) std::array<std::byte, 2048> small;
  if (header.size <= small.size()) {
    if (header.size != 0) std::memcpy(small.data(), header.data, header.size);
    return ReadHeader({small.data(), header.size});
  }
  const Buffer aligned = Buffer::Copy(header.data, header.size);
  return ReadHeader({aligned.data(), aligned.size()});
}

// The payload of a packed message is never taken: its frame is small, and holds more than it.
Buffer Keep(const FrameView& part, std::span<const FrameView> frames, std::size_t frame, FrameOwner* owner) {
  if (owner != nullptr && frames.size() > 1) {
    Buffer taken = owner->Take(frame);
    if (taken.size() == part.size && taken.size() != 0) return taken;
  }
  return Buffer::Copy(part.data, part.size);
}

}  // namespace

std::optional<std::uint32_t> VersionOf(const FrameView& first) {
  std::uint32_t magic = 0;
  constexpr std::size_t kVersionAt = offsetof(Prefix, version);
  static_assert(offsetof(Prefix, magic) == 0 && kVersionAt == 4, "the same in all versions");
  if (first.size <= kVersionAt) return std::nullopt;
  std::memcpy(&magic, first.data, sizeof(magic));
  if (magic != kMagic) return std::nullopt;
  return std::to_integer<std::uint32_t>(first.data[kVersionAt]);
}

Expected<std::vector<Buffer>> Encode(const Message& message) {
  TARN_RETURN_IF_ERROR(CheckMeaning(message));
  flatbuffers::FlatBufferBuilder builder(512);
  TARN_RETURN_IF_ERROR(BuildHeader(message, &builder));
  const std::span<const std::uint8_t> header(builder.GetBufferPointer(), builder.GetSize());
  const Buffer& keys = message.keys;
  const Buffer& values = message.values;
  Status sizes = CheckSizes(header.size(), keys.size(), values.size());
  if (!sizes) return Fail(sizes.error().code, fmt::format("{}: {}", BodyName(message.body), sizes.error().message));

  std::vector<Buffer> frames;
  if (PackedLayout(header.size(), keys.size()).values + values.size() <= limits::kSmallMessageBytes) {
    frames.push_back(Pack(header, keys, values));
    return frames;
  }
  const Prefix prefix = MakePrefix(FrameKind::kSplit, header.size(), keys.size());
  Buffer first = Buffer::Allocate(kPrefixBytes + header.size());
  CopyInto(&first, 0, &prefix, kPrefixBytes);
  CopyInto(&first, kPrefixBytes, header.data(), header.size());
  frames.reserve(limits::kFramesMax);
  frames.push_back(std::move(first));
  frames.push_back(keys);
  frames.push_back(values);
  return frames;
}

bool IsPacked(const FrameView& first) {
  Prefix prefix;
  if (first.size < kPrefixBytes) return false;
  std::memcpy(&prefix, first.data, kPrefixBytes);
  return prefix.magic == kMagic && prefix.version == limits::kProtocolVersion &&
         prefix.kind == static_cast<std::uint8_t>(FrameKind::kPacked);
}

Expected<Message> Decode(std::span<const FrameView> frames, FrameOwner* owner) {
  const Expected<Parts> parts = FindParts(frames);
  if (!parts) return std::unexpected(parts.error());
  TARN_RETURN_IF_ERROR(CheckSizes(parts->header.size, parts->keys.size, parts->values.size));
  Expected<Message> message = ReadCopy(parts->header);
  if (!message) return message;
  message->keys = Keep(parts->keys, frames, 1, owner);
  message->values = Keep(parts->values, frames, 2, owner);
  TARN_RETURN_IF_ERROR(CheckMeaning(*message));
  return message;
}

Expected<Message> Decode(std::span<const Buffer> frames) {
  if (frames.size() > limits::kFramesMax)
    return Fail(ErrorCode::kTooLarge,
                fmt::format("message: {} frames, expected 1 or {}", frames.size(), limits::kFramesMax));
  std::array<FrameView, limits::kFramesMax> views;
  for (std::size_t i = 0; i < frames.size(); ++i) views[i] = {frames[i].data(), frames[i].size()};
  return Decode(std::span<const FrameView>(views.data(), frames.size()));
}

}  // namespace tarn::net
