// Compresses lists of 64-bit keys that are close to each other, such as dense rows or small numbers. A list is stored
// in blocks of kKeyBlock keys (the last may be shorter), each
//
//   [width: 1 byte, 0 to 8] [least key: 8 bytes] [key - least, for each key in order: `width` bytes]
//
// (frame of reference: Goldstein, Ramakrishnan, Shaft, ICDE 1998), with kKeySlack zero bytes behind the last block, so
// that each difference is read as one word. Little-endian, at any alignment. Keys stay in their order and may repeat.
// Hashed keys do not become smaller: even sorted, n random keys could save only log2(n) - 1.4 bits each. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/key_delta.h"
#include "core/types.h"

namespace tarn::kernels {

// Writes keys to `out`, which has room for DeltaBytesMax(keys.size()), and returns the number of bytes; 0 if they would
// exceed three quarters of the uncompressed size. Most such lists are abandoned after a few blocks.
std::size_t EncodeKeys(std::span<const Key> keys, std::byte* out);

// Decodes n keys. False if `in` does not hold n keys: wrong size, unknown width, a key beyond 64 bits, or non-zero
// bytes after the end. Reads and writes stay within bounds for any bytes.
bool DecodeKeys(std::size_t n, std::span<const std::byte> in, Key* out);

}  // namespace tarn::kernels
