#include "net/shm_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/log.h"
#include "net/wake_file.h"

namespace tarn::net {
namespace {

// Messages up to this size are read in place.
constexpr std::size_t kSmallBytes = std::size_t{32} << 10;
static_assert(kSmallBytes + 1024 <= ShmSegment::kRingBytesMin && limits::kBundleBytesMax <= kSmallBytes);

constexpr std::size_t HeadBytes(std::size_t frames) { return PadTo8(sizeof(std::uint32_t) * (1 + frames)); }

}  // namespace

bool ShmChannel::Send(Frames frames, std::size_t waiting_bytes_max) {
  const std::size_t bytes = BytesOf(frames);
  if (!waiting_.empty() && waiting_bytes_ + bytes > waiting_bytes_max) return false;
  waiting_.push_back(std::move(frames));
  waiting_bytes_ += bytes;
  Flush();
  return true;
}

bool ShmChannel::Send(const FrameView& frame, std::size_t waiting_bytes_max) {
  const bool fits = writer_.Room() >= HeadBytes(1) + PadTo8(frame.size);
  if (!waiting_.empty() || gone_ || broken_ || !fits)
    return Send({Buffer::Copy(frame.data, frame.size)}, waiting_bytes_max);
  const auto size = static_cast<std::uint32_t>(frame.size);
  WriteHead({&size, 1});
  writer_.Write(frame.data, frame.size);
  writer_.Skip(PadTo8(frame.size) - frame.size);
  Publish();
  return true;
}

std::size_t ShmChannel::waiting_messages() const {
  std::size_t messages = 0;
  for (const Frames& frames : waiting_) messages += MessagesIn(frames);
  return messages;
}

void ShmChannel::WriteHead(std::span<const std::uint32_t> sizes) {
  std::array<std::uint32_t, 2 + limits::kFramesMax> head;
  head[0] = static_cast<std::uint32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), head.begin() + 1);
  head[1 + sizes.size()] = 0;
  writer_.Write(head.data(), HeadBytes(sizes.size()));
}

void ShmChannel::Flush() {
  while (!waiting_.empty() && !gone_ && !broken_) {
    const Frames& frames = waiting_.front();
    bool full = !begun_ && writer_.Room() < HeadBytes(frames.size());
    if (!begun_ && !full) {
      std::array<std::uint32_t, limits::kFramesMax> sizes;
      for (std::size_t i = 0; i < frames.size(); ++i) sizes[i] = static_cast<std::uint32_t>(frames[i].size());
      WriteHead({sizes.data(), frames.size()});
      begun_ = true;
      write_frame_ = write_offset_ = 0;
    }
    while (!full && write_frame_ < frames.size()) {
      const Buffer& frame = frames[write_frame_];
      const std::size_t left = PadTo8(frame.size()) - write_offset_;
      const std::size_t now = std::min(left, writer_.Room());
      const std::size_t unpadded = std::min(now, frame.size() - std::min(frame.size(), write_offset_));
      writer_.Write(frame.data() + write_offset_, unpadded);
      writer_.Skip(now - unpadded);
      write_offset_ += now;
      full = now < left;
      if (!full) ++write_frame_, write_offset_ = 0;
    }
    Publish();
    if (writer_.broken()) return Break("invalid counters");
    if (full) {
      if (writer_.WaitForRoom()) continue;
      return;
    }
    waiting_bytes_ -= BytesOf(frames);
    waiting_.pop_front();
    begun_ = false;
  }
}

void ShmChannel::Publish() {
  if (writer_.Publish()) WriteWake(other_wake_.get());
}

// While bytes are lent, the bytes after them cannot be released either.
void ShmChannel::Consume() {
  if (lent_bytes_ == 0 && reader_.GiveBack()) WriteWake(other_wake_.get());
}

void ShmChannel::GiveBack() {
  TARN_CHECK(lender_ == nullptr || lender_.use_count() == 1, "a lent payload is still in use");
  lent_bytes_ = 0;
  Consume();
}

void ShmChannel::TakeEnd() {
  char byte = 0;
  const ssize_t got = recv(socket_.get(), &byte, sizeof(byte), MSG_DONTWAIT);
  if (got > 0) return Break("to the socket");
  gone_ |= got == 0 || (errno != EAGAIN && errno != EINTR);
}

bool ShmChannel::Receive(ShmFrames* frames) {
  if (broken_ || lent_bytes_ > ring_bytes() / 8) return false;
  const bool was_gone = gone_;  // if so, the other side wrote its last byte before this line
  Consume();
  bool whole = false;
  if (reading_.count == 0 ? ReadHead(frames, &whole) : true) {
    if (whole || ReadOn(frames)) return true;
  }
  if (reader_.broken()) Break("invalid counters");
  drained_ = was_gone;
  return false;
}

// Begins to read the next message. False: too little of it has arrived, or it is invalid. *whole: `frames` has the
// complete message (small or lent); otherwise ReadOn copies it.
bool ShmChannel::ReadHead(ShmFrames* frames, bool* whole) {
  const std::size_t available = reader_.Available();
  if (available < HeadBytes(1)) return false;
  std::uint32_t count = 0;
  std::memcpy(&count, reader_.Place(), sizeof(count));
  if (count == 0 || count > limits::kFramesMax) return Break("an invalid number of frames"), false;
  if (available < HeadBytes(count)) return false;
  std::array<std::uint32_t, limits::kFramesMax> all_sizes;
  const std::span<std::uint32_t> sizes(all_sizes.data(), count);
  std::memcpy(sizes.data(), reader_.Place() + sizeof(count), sizes.size_bytes());
  std::size_t bytes = 0;
  for (const std::uint32_t size : sizes) {
    if (size > limits::kFrameBytesMax) return Break("a frame that exceeds the limit"), false;
    bytes += PadTo8(size);
  }
  const std::size_t head_bytes = HeadBytes(count);
  if (bytes <= kSmallBytes) return *whole = ReadSmall(sizes, head_bytes, bytes, frames);
  if (bytes > limits::kMessageBytesMax + limits::kFramesMax * 8)
    return Break("a message that exceeds the limit"), false;
  if (lender_ != nullptr && bytes <= ring_bytes() / 2) return *whole = Lend(sizes, head_bytes, bytes, frames);
  for (std::size_t i = 0; i < count; ++i) reading_.buffers[i] = Buffer::Allocate(sizes[i]);
  reading_.count = count;
  reading_.frame = reading_.offset = 0;
  reader_.Pass(head_bytes);
  return true;
}

bool ShmChannel::ReadSmall(std::span<const std::uint32_t> sizes, std::size_t head_bytes, std::size_t bytes,
                           ShmFrames* frames) {
  if (reader_.Available() < head_bytes + bytes) return false;
  const std::byte* at = reader_.Place() + head_bytes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    frames->views_[i] = {at, sizes[i]};
    at += PadTo8(sizes[i]);
  }
  frames->count_ = sizes.size();
  for (Buffer& buffer : frames->buffers_) buffer = Buffer();
  reader_.Pass(head_bytes + bytes);
  return true;
}

bool ShmChannel::Lend(std::span<const std::uint32_t> sizes, std::size_t head_bytes, std::size_t bytes,
                      ShmFrames* frames) {
  if (!ReadSmall(sizes, head_bytes, bytes, frames)) return false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // Received bytes are never written to.
    auto* lent = const_cast<std::byte*>(frames->views_[i].data);
    frames->buffers_[i] = Buffer::Lend(lent, sizes[i], lender_);
  }
  lent_bytes_ += bytes;
  return true;
}

// Copies the available part of the current message. Returns whether it is complete.
bool ShmChannel::ReadOn(ShmFrames* frames) {
  while (reading_.frame < reading_.count) {
    Buffer& buffer = reading_.buffers[reading_.frame];
    const std::size_t left = PadTo8(buffer.size()) - reading_.offset;
    const std::size_t now = std::min(left, reader_.Available());
    if (now == 0 && left != 0) return false;
    const std::size_t unpadded = std::min(now, buffer.size() - std::min(buffer.size(), reading_.offset));
    if (unpadded != 0) std::memcpy(buffer.data() + reading_.offset, reader_.Place(), unpadded);
    reader_.Pass(now);
    Consume();
    reading_.offset += now;
    if (now == left) ++reading_.frame, reading_.offset = 0;
  }
  for (std::size_t i = 0; i < reading_.count; ++i) {
    frames->views_[i] = {reading_.buffers[i].data(), reading_.buffers[i].size()};
    frames->buffers_[i] = std::move(reading_.buffers[i]);
  }
  frames->count_ = std::exchange(reading_.count, 0);
  return true;
}

void ShmChannel::Break(const char* what) {
  if (!broken_) LogWarning("shared memory: the other side wrote {}; continuing over the network", what);
  broken_ = true;
}

}  // namespace tarn::net
