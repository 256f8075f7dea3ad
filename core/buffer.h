// Reference-counted bytes, 64-byte aligned unless they are held for somebody else or a slice: the payload of a message.
// A socket, a resend queue and a state machine may hold the same bytes at once; whoever fills a buffer does so before
// it is shared. Copying shares.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "core/error.h"

namespace tarn {

class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  Buffer() = default;

  // `bytes` uninitialised bytes. `held` is let go with them, by whichever thread lets go of them last.
  static Buffer Allocate(std::size_t bytes, std::shared_ptr<void> held = nullptr) {
    Buffer buffer;
    if (bytes == 0) return buffer;
    auto* raw = static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kAlignment}));
    buffer.bytes_ = std::shared_ptr<std::byte[]>(raw, [held = std::move(held)](std::byte* p) mutable {
      ::operator delete[](p, std::align_val_t{kAlignment});
      held.reset();  // now: a weak owner may keep the deleter for longer
    });
    buffer.size_ = bytes;
    return buffer;
  }

  static Buffer Copy(const void* from, std::size_t bytes) {
    Buffer buffer = Allocate(bytes);
    if (bytes != 0) std::memcpy(buffer.data(), from, bytes);
    return buffer;
  }

  // Somebody else's bytes, which `owner` keeps. At least 8-byte aligned.
  static Buffer Hold(std::byte* bytes, std::size_t size, const std::shared_ptr<void>& owner) {
    Buffer buffer;
    buffer.bytes_ = std::shared_ptr<std::byte[]>(owner, bytes);
    buffer.size_ = size;
    return buffer;
  }

  // A part of these bytes, which it shares.
  Buffer Slice(std::size_t offset, std::size_t size) const {
    TARN_CHECK(offset <= size_ && size <= size_ - offset, "a slice within the buffer");
    Buffer slice;
    slice.bytes_ = std::shared_ptr<std::byte[]>(bytes_, bytes_.get() + offset);
    slice.size_ = size;
    return slice;
  }

  template <typename T>
  static Buffer CopyOf(std::span<const T> items) {
    return Copy(items.data(), items.size_bytes());
  }

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // The bytes as items of T; the size must be a multiple of sizeof(T).
  template <typename T>
  std::span<const T> as() const {
    TARN_CHECK(size_ % sizeof(T) == 0, "buffer size is not a multiple of the item");
    return {reinterpret_cast<const T*>(data()), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<T> as_mutable() {
    TARN_CHECK(size_ % sizeof(T) == 0, "buffer size is not a multiple of the item");
    return {reinterpret_cast<T*>(data()), size_ / sizeof(T)};
  }

 private:
  std::shared_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
};

}  // namespace tarn
