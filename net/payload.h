// The keys and values of a message, which follow its header: those of all its tables in order, each at the next
// multiple of 8 bytes, with zeros between. Internal to the frame codec.
#pragma once

#include <cstddef>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/message.h"

namespace tarn::net {

// Bytes that are not owned, at any alignment.
struct FrameView {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

// The owner of the frames of a message that is being decoded.
class FrameOwner {
 public:
  virtual ~FrameOwner() = default;
  // Transfers the bytes of a frame, aligned to at least 8, to the message. Empty if they must be copied.
  virtual Buffer Take(std::size_t frame) = 0;
};

// The buffers of one frame of an outgoing message. They are not owned, and must stay valid until the last CopyTo or
// Join.
class PayloadFrame {
 public:
  void Clear() { buffers_.clear(), bytes_ = 0; }
  void Add(const Buffer& buffer) {
    if (buffer.empty()) return;
    bytes_ = PadTo8(bytes_) + buffer.size();
    buffers_.push_back(&buffer);
  }
  std::size_t bytes() const { return bytes_; }
  // Writes bytes() bytes, which end without padding.
  void CopyTo(std::byte* to) const;
  // The bytes that CopyTo writes, as one buffer. Without a copy if there is only one buffer, or if the buffers are
  // adjacent in one allocation, with zeros between.
  Buffer Join() const;

 private:
  std::vector<const Buffer*> buffers_;
  std::size_t bytes_ = 0;
};

// Adds the payload of `message` to the two frames.
void AddPayload(const Message& message, PayloadFrame* keys, PayloadFrame* values);

// Reads the two frames of a received message, table by table. TakeKeys and TakeValues return the next `bytes` bytes of
// their frame. They set `status` to kMalformed if the frame ends early or its padding is not zero, and do nothing if
// `status` already has an error.
class PayloadReader {
 public:
  PayloadReader() = default;
  // `owner`: of both frames, which are frames 1 and 2 of the message; null: their bytes are copied.
  PayloadReader(const FrameView& keys, const FrameView& values, FrameOwner* owner)
      : keys_(keys, 1, owner), values_(values, 2, owner) {}

  Buffer TakeKeys(std::size_t bytes, Status* status) { return keys_.Take("keys", bytes, status); }
  Buffer TakeValues(std::size_t bytes, Status* status) { return values_.Take("values", bytes, status); }
  std::size_t keys_left() const { return keys_.left(); }
  std::size_t values_left() const { return values_.left(); }
  // kMalformed: a frame has bytes that were not taken.
  Status CheckEnd() const;

 private:
  class Frame {
   public:
    Frame() = default;
    Frame(const FrameView& view, std::size_t index, FrameOwner* owner) : view_(view), index_(index), owner_(owner) {}
    std::size_t left() const { return view_.size - at_; }
    Buffer Take(const char* name, std::size_t bytes, Status* status);
    Status CheckEnd(const char* name) const;

   private:
    Buffer Keep() const;

    FrameView view_;
    std::size_t index_ = 0;
    FrameOwner* owner_ = nullptr;
    Buffer whole_;
    std::size_t at_ = 0;
  };
  Frame keys_, values_;
};

}  // namespace tarn::net
