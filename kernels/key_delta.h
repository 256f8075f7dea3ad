// Lists of 64-bit keys in fewer bytes, for keys that lie near each other: dense rows, small numbers. In blocks of
// kKeyBlock keys, the last one perhaps shorter, each
//
//   [width: 1 byte, 0 to 8] [least key: 8 bytes] [key - least, for each key in order: `width` bytes]
//
// (frame of reference: Goldstein, Ramakrishnan, Shaft, ICDE 1998), with kKeySlack zero bytes behind the last block, so
// that each difference is read as one word. Little-endian, at any alignment. Keys stay in their order and may repeat.
// Keys of hashes do not shrink: sorted, n random keys could save log2(n) - 1.4 bits each and no more. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/key_delta.h"
#include "core/types.h"

namespace tarn::kernels {

// Writes keys to `out`, which has room for DeltaBytesMax(keys.size()), and returns the bytes; 0 if that would not be
// worth it: more than three quarters of the keys as they are. Most lists that are not are given up after a few blocks.
std::size_t EncodeKeys(std::span<const Key> keys, std::byte* out);

// The n keys that `in` holds. False if it does not: a wrong size, an unknown width, a key beyond 64 bits, bytes behind
// the end that are not zero. Reads and writes within bounds whatever the bytes are.
bool DecodeKeys(std::size_t n, std::span<const std::byte> in, Key* out);

}  // namespace tarn::kernels
