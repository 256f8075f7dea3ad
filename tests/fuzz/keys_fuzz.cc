// Shows that no bytes make the decoder of delta-coded keys read or write out of bounds, and that keys that it accepts
// are unchanged after they are encoded and decoded again.
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
  // An allocation of exactly that size, so that sanitizers detect reads beyond it.
  const auto bytes = std::make_unique<std::byte[]>(size - 2);
  if (size > 2) std::memcpy(bytes.get(), data + 2, size - 2);
  std::vector<Key> keys(n);
  if (!DecodeKeys(n, {bytes.get(), size - 2}, keys.data())) return;
  std::vector<std::byte> encoded(DeltaBytesMax(n));
  encoded.resize(EncodeKeys(keys, encoded.data()));
  if (encoded.empty()) return;  // the encoded keys would be too large
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
