#include "net/payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tarn::net {

void PayloadFrame::CopyTo(std::byte* to) const {
  std::size_t at = 0;
  for (const Buffer* buffer : buffers_) {
    const std::size_t begin = PadTo8(at);
    std::memset(to + at, 0, begin - at);
    std::memcpy(to + begin, buffer->data(), buffer->size());
    at = begin + buffer->size();
  }
}

Buffer PayloadFrame::Join() const {
  if (buffers_.empty()) return {};
  if (buffers_.size() == 1) return *buffers_.front();
  const std::byte* const first = buffers_.front()->data();
  std::size_t at = 0;
  bool follow = true;
  for (const Buffer* buffer : buffers_) {
    const std::size_t begin = PadTo8(at);
    follow = follow && buffer->SharesWith(*buffers_.front()) && buffer->data() == first + begin &&
             std::all_of(first + at, first + begin, [](std::byte padding) { return padding == std::byte{0}; });
    at = begin + buffer->size();
  }
  if (follow) return buffers_.front()->Through(*buffers_.back());
  Buffer joined = Buffer::Allocate(bytes_);
  CopyTo(joined.data());
  return joined;
}

void AddPayload(const Message& message, PayloadFrame* keys, PayloadFrame* values) {
  ForEachPayload(
      message, [keys](const Buffer& buffer) { keys->Add(buffer); },
      [values](const Buffer& buffer) { values->Add(buffer); });
}

Buffer PayloadReader::Frame::Keep() const {
  if (owner_ != nullptr) {
    Buffer taken = owner_->Take(index_);
    if (taken.size() == view_.size) return taken;
  }
  return Buffer::Copy(view_.data, view_.size);
}

Buffer PayloadReader::Frame::Take(const char* name, std::size_t bytes, Status* status) {
  if (bytes == 0 || !*status) return {};
  const std::size_t begin = PadTo8(at_);
  if (begin > view_.size || bytes > view_.size - begin) {
    *status = Fail(ErrorCode::kMalformed,
                   fmt::format("{} frame: {} bytes, expected at least {}", name, view_.size, begin + bytes));
    return {};
  }
  if (whole_.empty()) whole_ = Keep();
  for (; at_ < begin; ++at_) {
    if (whole_.data()[at_] == std::byte{0}) continue;
    *status = Fail(ErrorCode::kMalformed, fmt::format("{} frame: the padding at byte {} is not 0", name, at_));
    return {};
  }
  at_ = begin + bytes;
  return bytes == whole_.size() ? whole_ : whole_.Slice(begin, bytes);
}

Status PayloadReader::Frame::CheckEnd(const char* name) const {
  if (left() == 0) return {};
  return Fail(ErrorCode::kMalformed, fmt::format("{} frame: {} bytes, expected {}", name, view_.size,
                                                 at_ == 0 ? "none" : std::to_string(at_)));
}

Status PayloadReader::CheckEnd() const {
  TARN_RETURN_IF_ERROR(keys_.CheckEnd("keys"));
  return values_.CheckEnd("values");
}

}  // namespace tarn::net
