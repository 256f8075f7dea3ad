#include "net/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "core/limits.h"
#include "net/header.h"

namespace tarn::net {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

constexpr std::size_t kPrefixBytes = sizeof(Prefix);
constexpr std::size_t kBundledHeadBytes = 2 * sizeof(std::uint32_t);
constexpr std::size_t kBuilderBytes = 4096;  // memory kept between messages

// Offsets of the parts of a packed frame.
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

// Copies `bytes` bytes and appends zeros up to the next multiple of 8. Returns the end.
std::byte* CopyPadded(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
  std::memset(to + bytes, 0, PadTo8(bytes) - bytes);
  return to + PadTo8(bytes);
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

// Reads the prefix of a frame. Checks that it is complete, and its magic number and reserved field.
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
    return Fail(ErrorCode::kMalformed,
                fmt::format("prefix: header of {} and keys of {} bytes, expected to fit in the frame of {}",
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

// Copies the header before reading it: FlatBuffers needs 8-byte alignment, which the network does not guarantee, and
// bytes that do not change after the check, which shared memory does not guarantee.
Status ReadCopy(const FrameView& header, PayloadReader* payload, Message* message) {
  alignas(8) std::array<std::byte, 2048> small;
  if (header.size <= small.size()) {
    if (header.size != 0) std::memcpy(small.data(), header.data, header.size);
    return ReadHeader({small.data(), header.size}, payload, message);
  }
  const Buffer aligned = Buffer::Copy(header.data, header.size);
  return ReadHeader({aligned.data(), aligned.size()}, payload, message);
}

Status DecodeTo(Message* message, std::span<const FrameView> frames, FrameOwner* owner) {
  const Expected<Parts> parts = FindParts(frames);
  if (!parts) return std::unexpected(parts.error());
  TARN_RETURN_IF_ERROR(CheckSizes(parts->header.size, parts->keys.size, parts->values.size));
  // The payload of a packed message is always copied: its frame is small and has other contents.
  PayloadReader payload(parts->keys, parts->values, frames.size() > 1 ? owner : nullptr);
  TARN_RETURN_IF_ERROR(ReadCopy(parts->header, &payload, message));
  return CheckMeaning(*message);
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

Encoder::Encoder() : builder_(std::make_unique<flatbuffers::FlatBufferBuilder>(kBuilderBytes)) {}
Encoder::~Encoder() = default;

Status Encoder::Begin(const Message& message) {
  TARN_RETURN_IF_ERROR(CheckMeaning(message));
  // Frees the memory of a large header.
  if (builder_->GetSize() > kBuilderBytes) builder_->Reset();
  builder_->Clear();
  TARN_RETURN_IF_ERROR(BuildHeader(message, builder_.get()));
  keys_.Clear();
  values_.Clear();
  AddPayload(message, &keys_, &values_);
  Status sizes = CheckSizes(header().size(), keys_.bytes(), values_.bytes());
  if (!sizes) return Fail(sizes.error().code, fmt::format("{}: {}", BodyName(message.body), sizes.error().message));
  const std::size_t bytes = PackedLayout(header().size(), keys_.bytes()).values + values_.bytes();
  packed_bytes_ = bytes <= limits::kSmallMessageBytes ? bytes : 0;
  return {};
}

std::span<const std::uint8_t> Encoder::header() const { return {builder_->GetBufferPointer(), builder_->GetSize()}; }

void Encoder::Pack(std::byte* to) const {
  const Prefix prefix = MakePrefix(FrameKind::kPacked, header().size(), keys_.bytes());
  to = CopyPadded(to, &prefix, kPrefixBytes);
  to = CopyPadded(to, header().data(), header().size());
  keys_.CopyTo(to);
  std::memset(to + keys_.bytes(), 0, PadTo8(keys_.bytes()) - keys_.bytes());
  values_.CopyTo(to + PadTo8(keys_.bytes()));
}

std::vector<Buffer> Encoder::Split() const {
  const Prefix prefix = MakePrefix(FrameKind::kSplit, header().size(), keys_.bytes());
  Buffer first = Buffer::Allocate(kPrefixBytes + header().size());
  std::memcpy(first.data(), &prefix, kPrefixBytes);
  std::memcpy(first.data() + kPrefixBytes, header().data(), header().size());
  std::vector<Buffer> frames;
  frames.reserve(limits::kFramesMax);
  frames.push_back(std::move(first));
  frames.push_back(keys_.Join());
  frames.push_back(values_.Join());
  return frames;
}

Expected<std::vector<Buffer>> Encode(const Message& message) {
  Encoder encoder;
  TARN_RETURN_IF_ERROR(encoder.Begin(message));
  if (encoder.packed_bytes() == 0) return encoder.Split();
  Buffer frame = Buffer::Allocate(encoder.packed_bytes());
  encoder.Pack(frame.data());
  return std::vector<Buffer>{std::move(frame)};
}

std::byte* BundleWriter::Place(std::size_t packed_bytes) {
  if (!bytes_) bytes_ = std::make_unique_for_overwrite<std::byte[]>(limits::kBundleBytesMax);
  const std::size_t padded = PadTo8(packed_bytes);
  if (messages_ == limits::kBundleMessagesMax || limits::kBundleBytesMax - size_ < kBundledHeadBytes + padded)
    return nullptr;
  const std::uint32_t head[2] = {static_cast<std::uint32_t>(packed_bytes), 0};
  std::byte* place = CopyPadded(bytes_.get() + size_, head, kBundledHeadBytes);
  std::memset(place + packed_bytes, 0, padded - packed_bytes);
  size_ += kBundledHeadBytes + padded;
  ++messages_;
  return place;
}

FrameView BundleWriter::Finish() {
  if (messages_ == 1) {
    std::uint32_t packed_bytes = 0;
    std::memcpy(&packed_bytes, bytes_.get() + kPrefixBytes, sizeof(packed_bytes));
    return {bytes_.get() + kPrefixBytes + kBundledHeadBytes, packed_bytes};
  }
  const Prefix prefix = MakePrefix(FrameKind::kBundle, size_ - kPrefixBytes, messages_);
  std::memcpy(bytes_.get(), &prefix, kPrefixBytes);
  return {bytes_.get(), size_};
}

void BundleWriter::Clear() {
  size_ = kPrefixBytes;
  messages_ = 0;
}

bool IsBundle(const FrameView& frame) {
  Prefix prefix;
  if (frame.size < kPrefixBytes) return false;
  std::memcpy(&prefix, frame.data, kPrefixBytes);
  return prefix.magic == kMagic && prefix.version == limits::kProtocolVersion &&
         prefix.kind == static_cast<std::uint8_t>(FrameKind::kBundle);
}

std::size_t MessagesIn(const FrameView& frame) {
  Prefix prefix;
  if (!IsBundle(frame)) return 1;
  std::memcpy(&prefix, frame.data, kPrefixBytes);
  return prefix.keys_bytes;
}

// Reads each size only once, because memory shared with the sender may change.
Expected<BundledFrames> SplitBundle(const FrameView& frame) {
  const Expected<Prefix> prefix = ReadPrefix(frame);
  if (!prefix) return std::unexpected(prefix.error());
  const std::uint32_t messages = prefix->keys_bytes;
  if (frame.size > limits::kBundleBytesMax)
    return std::unexpected(TooLarge("bundle", frame.size, limits::kBundleBytesMax).error());
  if (messages > limits::kBundleMessagesMax)
    return Fail(ErrorCode::kTooLarge,
                fmt::format("bundle: {} messages, expected at most {}", messages, limits::kBundleMessagesMax));
  if (prefix->header_bytes != frame.size - kPrefixBytes)
    return Fail(ErrorCode::kMalformed, fmt::format("prefix.header_bytes: {}, expected {} (the rest of the bundle)",
                                                   prefix->header_bytes, frame.size - kPrefixBytes));
  BundledFrames out;
  std::size_t at = kPrefixBytes;
  for (; out.count < messages; ++out.count) {
    std::uint32_t head[2] = {0, 0};
    if (frame.size - at >= kBundledHeadBytes) std::memcpy(head, frame.data + at, kBundledHeadBytes);
    const std::size_t left = frame.size - at - std::min(frame.size - at, kBundledHeadBytes);
    if (head[0] == 0 || head[1] != 0 || PadTo8(head[0]) > left)
      return Fail(
          ErrorCode::kMalformed,
          fmt::format(
              "bundle: message {} of {} has {} bytes ({:#x} behind that), expected 1 to {} bytes (0 behind that)",
              out.count, messages, head[0], head[1], left));
    at += kBundledHeadBytes;
    TARN_RETURN_IF_ERROR(CheckZeros(frame, at + head[0], at + PadTo8(head[0])));
    out.frames[out.count] = {frame.data + at, head[0]};
    at += PadTo8(head[0]);
  }
  if (at != frame.size || messages == 0)
    return Fail(ErrorCode::kMalformed,
                fmt::format("bundle: {} bytes behind {} messages, expected 0 behind at least 1 message",
                            frame.size - at, messages));
  return out;
}

Expected<Message> Decode(std::span<const FrameView> frames, FrameOwner* owner) {
  Expected<Message> message;  // the only returned object, so that the compiler constructs it in the caller's place
  if (Status status = DecodeTo(&*message, frames, owner); !status) message = std::unexpected(std::move(status).error());
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
