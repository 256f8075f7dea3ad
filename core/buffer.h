// Reference-counted bytes: the payload of a message. 64-byte aligned, except slices and bytes that another object owns.
// Copying a Buffer shares its bytes, so a socket, a resend queue and a state machine may use them at once. Fill a
// buffer before it is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "core/error.h"

namespace tarn {

constexpr std::size_t PadTo8(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  Buffer() = default;

  // `bytes` uninitialised bytes.
  static Buffer Allocate(std::size_t bytes) {
    if (bytes == 0) return {};
#if defined(__SANITIZE_ADDRESS__)
    // Exact size, so that sanitizers detect overflows.
    auto* exact = static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kAlignment}));
    return Buffer({exact, [](std::byte* p) { ::operator delete[](p, std::align_val_t{kAlignment}); }}, bytes);
#else
    // One block for the bytes and the reference count; an aligned allocation would take several times as long.
    auto block = std::make_shared_for_overwrite<std::byte[]>(bytes + kAlignment - 1);
    const auto address = reinterpret_cast<std::uintptr_t>(block.get());
    std::byte* first = block.get() + (kAlignment - address % kAlignment) % kAlignment;
    return Buffer({std::move(block), first}, bytes);
#endif
  }

  // The same, and keeps `held` alive: the thread that releases the last reference to the bytes also destroys `held`.
  template <typename Held>
  static Buffer Allocate(std::size_t bytes, Held held) {
    Buffer whole = Allocate(bytes);
    if (bytes == 0) return whole;
    std::byte* first = whole.data();
    auto release = [whole = std::move(whole.bytes_), held = std::move(held)](std::byte*) mutable {
      whole.reset();
      const Held last = std::move(held);  // destroyed now, because a weak owner may keep the deleter longer
    };
    return Buffer({first, std::move(release)}, bytes);
  }

  static Buffer Copy(const void* from, std::size_t bytes) {
    Buffer buffer = Allocate(bytes);
    if (bytes != 0) std::memcpy(buffer.data(), from, bytes);
    return buffer;
  }

  // Refers to bytes that `owner` keeps alive. They must be at least 8-byte aligned.
  static Buffer Hold(std::byte* bytes, std::size_t size, const std::shared_ptr<void>& owner) {
    return Buffer({owner, bytes}, size);
  }
  // The same for bytes that are valid only for a limited time; lent() is then true. Users that need them longer must
  // copy them.
  static Buffer Lend(std::byte* bytes, std::size_t size, const std::shared_ptr<void>& owner) {
    Buffer buffer = Hold(bytes, size, owner);
    buffer.lent_ = true;
    return buffer;
  }

  // A part of these bytes, shared.
  Buffer Slice(std::size_t offset, std::size_t size) const {
    TARN_CHECK(offset <= size_ && size <= size_ - offset, "a slice within the buffer");
    Buffer slice({bytes_, bytes_.get() + offset}, size);
    slice.lent_ = lent_;
    return slice;
  }

  // Whether both are parts of one allocation.
  bool SharesWith(const Buffer& other) const {
    return !bytes_.owner_before(other.bytes_) && !other.bytes_.owner_before(bytes_);
  }
  // From the beginning of this part to the end of a later part of the same allocation, shared.
  Buffer Through(const Buffer& last) const {
    TARN_CHECK(SharesWith(last) && last.data() >= data(), "a later part of the same bytes");
    Buffer all(bytes_, static_cast<std::size_t>(last.data() - data()) + last.size());
    all.lent_ = lent_;
    return all;
  }

  template <typename T>
  static Buffer CopyOf(std::span<const T> items) {
    return Copy(items.data(), items.size_bytes());
  }

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool lent() const { return lent_; }

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
  Buffer(std::shared_ptr<std::byte[]> bytes, std::size_t size) : bytes_(std::move(bytes)), size_(size) {}

  std::shared_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
  bool lent_ = false;
};

}  // namespace tarn
