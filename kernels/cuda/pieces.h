// How a GPU divides the sum over the occurrences of a row, so that the occurrences of a frequent row are summed by many
// threads, while the result depends only on the occurrences.
//
// The occurrences of a batch are sorted by row; those of a row, its segment, have the positions begin ... end - 1. A
// segment is divided, from its begin, into pieces of kPiece positions. Each piece is summed in order. If a segment has
// several pieces, the sums of kPiece neighbouring pieces are added, in order, to the sum of the first of them, then the
// sums of kPiece such groups, until one sum remains: a tree whose shape depends only on end - begin.
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

// Slot that stores the sum of the piece that begins at `at`, if its segment has several pieces; below PieceSlots(n).
// Slots do not collide: in any kPiece consecutive positions at most one first piece of such a segment and one other
// piece begin, because two pieces of a kind begin at least kPiece positions apart.
TARN_HOST_DEVICE constexpr std::size_t PieceSlot(std::uint32_t begin, std::uint32_t at) {
  return 2 * std::size_t{at / kPiece} + (at == begin ? 0 : 1);
}

TARN_HOST_DEVICE constexpr std::size_t PieceSlots(std::size_t n) { return 2 * ((n + kPiece - 1) / kPiece); }

// The inverse of PieceSlot. If a piece uses the slot, PositionOfSlot is below the batch's n and lies in the piece's
// segment, and PieceOfSlot of that segment is the begin of the piece. Otherwise PieceOfSlot is kNoPiece. Reason: two
// slots belong to each block of kPiece consecutive positions. A segment of which a piece other than the first begins in
// the block contains the first position of the block. A segment that begins in the block and has several pieces
// contains the first position after the block.
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

// Whether the sum at `at` adds others to itself at this level of the tree. A level adds kPiece sums over `width`
// positions each, for width = kPiece, kPiece^2, ... while the segment is longer than `width`.
TARN_HOST_DEVICE constexpr bool TakesSums(std::uint32_t begin, std::uint32_t end, std::uint32_t at,
                                          std::uint64_t width) {
  return end - begin > width && (at - begin) % (width * kPiece) == 0;
}

// End of the sums that are added to the one at `at`: they are at + width, at + 2 width, ... below this.
TARN_HOST_DEVICE constexpr std::uint64_t SumsEnd(std::uint32_t end, std::uint32_t at, std::uint64_t width) {
  return at + width * kPiece < end ? at + width * kPiece : end;
}

// Whether this level produces the sum of the whole segment.
TARN_HOST_DEVICE constexpr bool IsRoot(std::uint32_t begin, std::uint32_t end, std::uint64_t width) {
  return end - begin <= width * kPiece;
}

}  // namespace tarn::kernels::cuda
