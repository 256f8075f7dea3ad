// Shows that low slots are taken first, that nearly every slot number can be used, and that the last chunk can be freed
// when it is empty.
#include "server/tier/row_slots.h"

#include <gtest/gtest.h>

#include <vector>

namespace tarn::server {
namespace {

TEST(RowSlotsTest, NearlyEverySlotNumberCanBeUsed) {
  for (std::size_t words = 1; words < 5000; words += 7) {
    const RowSlots slots(words, std::size_t{2} << 20);
    const std::size_t slots_max = kResidentRowsMax / slots.rows_per_chunk() * std::size_t{slots.rows_per_chunk()};
    EXPECT_GT(slots_max, kResidentRowsMax - (std::size_t{4} << 20) / (words * 4)) << words << " words";
    EXPECT_LE(slots.chunk_bytes(), std::size_t{4} << 20);
  }
}

TEST(RowSlotsTest, LowSlotsAreTakenFirstSoThatTheLastChunkEmpties) {
  RowSlots slots(3, 512);
  ASSERT_TRUE(slots.AddChunk());
  ASSERT_TRUE(slots.AddChunk());
  const std::uint32_t each = slots.rows_per_chunk();
  for (std::uint32_t i = 0; i < each + 2; ++i) EXPECT_EQ(slots.Take(1, i), i);
  EXPECT_EQ(slots.used(), each + 2);
  EXPECT_EQ(slots.RowsInLastChunk(), 2u);
  EXPECT_EQ(slots.LastChunk(), each);
  slots.Free(4);
  EXPECT_EQ(slots.Of(4).place, RowSlots::kNone);
  EXPECT_EQ(slots.Take(2, 7), 4u);
  EXPECT_EQ(slots.Of(4).number, 7u);
  EXPECT_EQ(slots.After(each - 1), each);
  EXPECT_EQ(slots.After(2 * each - 1), 0u);
  slots.Free(each);
  slots.Free(each + 1);
  slots.DropLastChunk();
  EXPECT_EQ(slots.free(), 0u);
  EXPECT_FALSE(slots.Has(each));
  EXPECT_EQ(slots.memory_bytes(), slots.chunk_bytes());
}

TEST(RowSlotsTest, RowsKeepTheirWords) {
  RowSlots slots(5, 1);
  for (std::uint32_t i = 0; i < 40; ++i) {
    if (slots.free() == 0) {
      ASSERT_TRUE(slots.AddChunk());
    }
    const std::vector<std::uint32_t> words(5, i);
    slots.Write(slots.Take(0, i), words.data());
  }
  for (std::uint32_t i = 0; i < 40; ++i) EXPECT_EQ(reinterpret_cast<const std::uint32_t*>(slots.Row(i))[4], i);
}

}  // namespace
}  // namespace tarn::server
