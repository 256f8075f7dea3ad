// Shows that no bytes make the frame codec crash, read out of bounds or allocate memory out of proportion to the input;
// and that a message that it accepts is unchanged after Encode and Decode.
//
// An input is a byte with the number of frames, then the frames, each but the last after its length as 16 bits.
// frame_corpus (frame_corpus_main.cc) writes the first inputs, corpus/frame.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "net/frame.h"
#include "tests/unit/net/fields.h"

namespace tarn::net {
namespace {

std::vector<FrameView> CutFrames(const std::uint8_t* data, std::size_t size) {
  std::vector<FrameView> frames;
  if (size == 0) return frames;
  const std::size_t count = data[0] % 6;
  std::size_t at = 1;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t length = size - at;
    if (i + 1 < count) {
      if (length < 2) break;
      const std::size_t named = data[at] | std::size_t{data[at + 1]} << 8;
      at += 2;
      length = std::min(named, size - at);
    }
    frames.push_back({reinterpret_cast<const std::byte*>(data + at), length});
    at += length;
  }
  return frames;
}

void Try(const std::uint8_t* data, std::size_t size) {
  const auto message = Decode(CutFrames(data, size));
  if (!message) {
    TARN_CHECK(!message.error().message.empty(), "an error says something");
    return;
  }
  const auto frames = Encode(*message);
  TARN_CHECK(frames.has_value(), "what was decoded can be encoded");
  const auto again = Decode(std::span<const Buffer>(*frames));
  TARN_CHECK(again.has_value() && testing::Equal(*message, *again), "what was encoded is decoded the same");
}

}  // namespace
}  // namespace tarn::net

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tarn::net::Try(data, size);
  return 0;
}
