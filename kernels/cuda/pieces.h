// How the sum over a row's occurrences is cut on a GPU, so that a row which most samples name does not keep one thread
// busy with all of them, while the result depends on nothing but the occurrences.
//
// The occurrences of a batch lie sorted by row; those of a row, its segment, have the positions begin ... end. A
// segment is cut from its begin into pieces of kPiece positions, each summed in order. One that has more than one piece
// goes on: the sums of kPiece neighbouring pieces are added, in order, to the first of them, then the sums of kPiece
// such groups, until one sum is left: a tree whose shape depends on end - begin alone.
//
// Plain functions of positions, all below 2^31: segment_sum.cuh runs them on the GPU, the tests on the CPU too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"

namespace tarn::kernels::cuda {

inline constexpr std::uint32_t kPiece = 64;

TARN_HOST_DEVICE constexpr bool IsPieceBegin(std::uint32_t begin, std::uint32_t at) {
  return (at - begin) % kPiece == 0;
}

TARN_HOST_DEVICE constexpr bool IsOnePiece(std::uint32_t begin, std::uint32_t end) { return end - begin <= kPiece; }

// Where the sum of the piece that begins at `at` is kept until it is added, if its segment has several: below
// PieceSlots(n). Any kPiece consecutive positions hold at most one first piece of such a segment and one other, since
// two of a kind are kPiece positions apart or more.
TARN_HOST_DEVICE constexpr std::size_t PieceSlot(std::uint32_t begin, std::uint32_t at) {
  return 2 * std::size_t{at / kPiece} + (at == begin ? 0 : 1);
}

TARN_HOST_DEVICE constexpr std::size_t PieceSlots(std::size_t n) { return 2 * ((n + kPiece - 1) / kPiece); }

// The other way round: if a piece uses the slot, PositionOfSlot is below the batch's n and lies in its segment, of
// which PieceOfSlot tells where the piece begins, or kNoPiece. For two slots belong to kPiece consecutive positions; a
// segment that has a piece there, not its first, has the first of them, and one that begins there and has several
// pieces also has the position behind them.
inline constexpr std::uint32_t kNoPiece = ~0u;

TARN_HOST_DEVICE constexpr std::uint32_t PositionOfSlot(std::uint32_t slot) {
  return (slot / 2 + (slot % 2 == 0 ? 1 : 0)) * kPiece;
}

TARN_HOST_DEVICE constexpr std::uint32_t PieceOfSlot(std::uint32_t begin, std::uint32_t end, std::uint32_t slot) {
  const std::uint32_t first = slot / 2 * kPiece;
  if (slot % 2 == 0) return begin - first < kPiece && !IsOnePiece(begin, end) ? begin : kNoPiece;
  if (begin >= first) return kNoPiece;
  const std::uint32_t at = first + (kPiece - (first - begin) % kPiece) % kPiece;
  return at < end ? at : kNoPiece;
}

// The levels of the tree: `width` positions are in each of the sums that are added to the first of kPiece of them, for
// width = kPiece, kPiece^2, ... while a segment is longer than that.
TARN_HOST_DEVICE constexpr bool TakesSums(std::uint32_t begin, std::uint32_t end, std::uint32_t at,
                                          std::uint64_t width) {
  return end - begin > width && (at - begin) % (width * kPiece) == 0;
}

// Where the sums that the one at `at` takes end: they are at + width, at + 2 width, ... below it.
TARN_HOST_DEVICE constexpr std::uint64_t SumsEnd(std::uint32_t end, std::uint32_t at, std::uint64_t width) {
  return at + width * kPiece < end ? at + width * kPiece : end;
}

// Whether the sum that is left at this level is that of the whole segment.
TARN_HOST_DEVICE constexpr bool IsRoot(std::uint32_t begin, std::uint32_t end, std::uint64_t width) {
  return end - begin <= width * kPiece;
}

}  // namespace tarn::kernels::cuda
