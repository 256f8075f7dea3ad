// Shows that the positions and slots with which a GPU sums the occurrences of rows (segment_sum.cuh runs the same
// functions) use every occurrence once, in the order that kernels/segments.h documents, and that no two share a slot.
#include "kernels/cuda/pieces.h"

#include "tests/unit/kernels/kernel_test_util.h"
#include "tests/unit/kernels/piece_sum.h"

namespace tarn::kernels::cuda {
namespace {

// The passes of segment_sum.cuh over one column. Here pieces are processed backwards, which must not change a sum.
class Batch {
 public:
  Batch(const std::vector<std::uint32_t>& sizes, SplitMix& random) {
    for (const std::uint32_t size : sizes) {
      begins_.push_back(n_);
      n_ += size;
    }
    begins_.push_back(n_);
    terms_ = RandomFloats(n_, random);
    rows_ = RandomFloats(sizes.size(), random);
    slots_ = Poisoned(PieceSlots(n_));
  }

  std::vector<float> Expected() const {
    std::vector<float> out = rows_;
    for (std::size_t r = 0; r < out.size(); ++r)
      out[r] = AddInPieces(out[r], {terms_.begin() + begins_[r], terms_.begin() + begins_[r + 1]});
    return out;
  }

  // Expects that each slot leads back to exactly the pieces that use it.
  void ExpectPiecesOfSlots() const {
    std::vector<std::uint32_t> expected(PieceSlots(n_), kNoPiece), actual = expected;
    ForEachPiece([&](std::size_t, std::uint32_t begin, std::uint32_t end, std::uint32_t at) {
      if (!IsOnePiece(begin, end)) expected[PieceSlot(begin, at)] = at;
    });
    for (std::uint32_t slot = 0; slot < actual.size(); ++slot) {
      const std::uint32_t inside = PositionOfSlot(slot);
      if (inside >= n_) continue;
      const auto end = std::ranges::upper_bound(begins_, inside);
      actual[slot] = PieceOfSlot(end[-1], *end, slot);
    }
    EXPECT_EQ(actual, expected);
  }

  std::vector<float> Sum() {
    ForEachPiece([this](std::size_t row, std::uint32_t begin, std::uint32_t end, std::uint32_t at) {
      const bool whole = IsOnePiece(begin, end);
      float& to = whole ? rows_[row] : NewSlot(PieceSlot(begin, at));
      float sum = whole ? to : 0.0f;
      for (std::uint32_t i = at; i < std::min(at + kPiece, end); ++i) sum += terms_[i];
      to = sum;
    });
    for (std::uint64_t width = kPiece; width < n_; width *= kPiece) AddSums(width);
    return rows_;
  }

 private:
  template <typename F>
  void ForEachPiece(F f) const {
    for (std::size_t row = rows_.size(); row-- > 0;) {
      const std::uint32_t begin = begins_[row], end = begins_[row + 1];
      for (std::uint32_t at = end; at-- > begin;)
        if (IsPieceBegin(begin, at)) f(row, begin, end, at);
    }
  }

  float& NewSlot(std::size_t slot) {
    EXPECT_LT(slot, slots_.size());
    EXPECT_TRUE(std::isnan(slots_[slot])) << "two pieces in slot " << slot;
    return slots_[slot];
  }

  void AddSums(std::uint64_t width) {
    ForEachPiece([=, this](std::size_t row, std::uint32_t begin, std::uint32_t end, std::uint32_t at) {
      if (!TakesSums(begin, end, at, width)) return;
      float& sum = slots_[PieceSlot(begin, at)];
      for (std::uint64_t next = at + width; next < SumsEnd(end, at, width); next += width)
        sum += slots_[PieceSlot(begin, std::uint32_t(next))];
      if (IsRoot(begin, end, width)) rows_[row] += sum;
    });
  }

  std::uint32_t n_ = 0;
  std::vector<std::uint32_t> begins_;
  std::vector<float> terms_, rows_, slots_;
};

void Check(const std::vector<std::uint32_t>& sizes, SplitMix& random) {
  Batch batch(sizes, random);
  batch.ExpectPiecesOfSlots();
  const std::vector<float> expected = batch.Expected();
  EXPECT_TRUE(SameBits(batch.Sum(), expected));
}

TEST(PiecesTest, SegmentsOfSizesAroundThoseOfPieces) {
  SplitMix random(1);
  Check({}, random);
  for (const std::uint32_t size : {0u, 1u, 63u, 64u, 65u, 127u, 128u, 129u, 4095u, 4096u, 4097u, 262144u, 262145u})
    for (const std::uint32_t before : {0u, 1u, 63u, 65u, 100u}) Check({before, size, 1, 70}, random);
}

TEST(PiecesTest, ManySegmentsSideBySide) {
  SplitMix random(2);
  for (const std::uint32_t size_max : {2u, 65u, 70u, 200u, 10000u}) {
    std::vector<std::uint32_t> sizes(500);
    for (std::uint32_t& size : sizes) size = std::uint32_t(random.Below(size_max + 1));
    Check(sizes, random);
  }
  Check(std::vector<std::uint32_t>(300, 65), random);
}

TEST(PiecesTest, TheLargestPositions) {
  constexpr std::uint32_t kEnd = (1u << 31) - 1;
  constexpr std::uint64_t kWidth = std::uint64_t{1} << 30;  // the last level that a batch can have
  EXPECT_LT(PieceSlot(0, kEnd - 1), PieceSlots(kEnd));
  const auto last = static_cast<std::uint32_t>(PieceSlots(kEnd)) - 1;
  EXPECT_EQ(PieceOfSlot(0, kEnd, last), PositionOfSlot(last));
  EXPECT_GE(PositionOfSlot(last - 1), kEnd);
  EXPECT_TRUE(TakesSums(0, kEnd, 0, kWidth));
  EXPECT_EQ(SumsEnd(kEnd, 0, kWidth), kEnd);
  EXPECT_TRUE(IsRoot(0, kEnd, kWidth));
  EXPECT_FALSE(IsRoot(0, kEnd, kWidth / kPiece));
}

}  // namespace
}  // namespace tarn::kernels::cuda
