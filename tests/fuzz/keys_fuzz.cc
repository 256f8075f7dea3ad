// Shows that no bytes make the decoder of delta-coded keys read or write out of bounds, and that the keys that it does
// accept are encoded and decoded the same again.
//
// An input is the number of keys as 16 bits, then the bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "kernels/key_delta.h"

namespace tarn::kernels {
namespace {

void Try(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return;
  const std::size_t n = data[0] | std::size_t{data[1]} << 8;
  // Memory of exactly that size, which sanitizers watch.
  const auto bytes = std::make_unique<std::byte[]>(size - 2);
  if (size > 2) std::memcpy(bytes.get(), data + 2, size - 2);
  std::vector<Key> keys(n);
  if (!DecodeKeys(n, {bytes.get(), size - 2}, keys.data())) return;
  std::vector<std::byte> encoded(DeltaBytesMax(n));
  encoded.resize(EncodeKeys(keys, encoded.data()));
  if (encoded.empty()) return;  // not worth it
  std::vector<Key> again(n);
  TARN_CHECK(DecodeKeys(n, encoded, again.data()), "what was encoded can be decoded");
  TARN_CHECK(again == keys, "what was encoded is decoded the same");
}

}  // namespace
}  // namespace tarn::kernels

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tarn::kernels::Try(data, size);
  return 0;
}
