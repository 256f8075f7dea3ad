// The positions of a sparse table's keys on the 64-bit line (core/position.h), and back: the mixer is invertible. Keys
// sorted by position are grouped by partition for any number of partitions.
//
//   PositionsOf(n, keys, salt, positions);   // Positioner of a sparse table with this salt
//   KeysAt(n, positions, salt, keys);
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// n keys to their positions. `positions` may be the array of `keys`. Any thread.
void PositionsOf(std::size_t n, const Key* keys, std::uint64_t salt, Position* positions);
// The reverse.
void KeysAt(std::size_t n, const Position* positions, std::uint64_t salt, Key* keys);

// On a GPU: the same.
void PositionsOf(Stream& stream, std::size_t n, const Key* keys, std::uint64_t salt, Position* positions);
void KeysAt(Stream& stream, std::size_t n, const Position* positions, std::uint64_t salt, Key* keys);

}  // namespace tarn::kernels
