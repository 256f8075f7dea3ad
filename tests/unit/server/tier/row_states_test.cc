// Shows a row's state word: changing its location keeps its count of uses; counts rise with use and fall with age.
#include "server/tier/row_states.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

TEST(RowStateTest, ALocationKeepsTheCount) {
  RowState state(5);
  state.SetCount(9);
  EXPECT_FALSE(state.is_cold());
  EXPECT_FALSE(state.has_copy());
  EXPECT_EQ(state.slot(), 5u);
  state.MoveToDisk(kColdIds - 1);
  EXPECT_TRUE(state.IsColdAt(kColdIds - 1));
  EXPECT_FALSE(state.IsColdAt(kColdIds - 2));
  EXPECT_EQ(state.count(), 9u);
  state.MoveTo(kResidentRowsMax - 1, true);
  EXPECT_TRUE(state.has_copy());
  state.DropCopy();
  EXPECT_FALSE(state.has_copy());
  EXPECT_EQ(state.slot(), kResidentRowsMax - 1);
  EXPECT_EQ(state.count(), 9u);
}

TEST(RowStatesTest, ANumberWithoutARowIsNeitherColdNorACopy) {
  RowStates states(1);
  states.AddPlacesTo(2);
  EXPECT_FALSE(states.Has(1, 0));
  for (std::uint32_t number = 0; number < 3000; ++number) states.Add(1, number, number);
  EXPECT_TRUE(states.Has(1, 2999));
  EXPECT_FALSE(states.Has(1, 3000));
  EXPECT_FALSE(states.Has(2, 0));
  states.Remove(1, 2000);
  EXPECT_EQ(states.rows(), 2999u);
  EXPECT_FALSE(states.At(1, 2000).is_cold());
  EXPECT_FALSE(states.At(1, 2000).has_copy());
  EXPECT_EQ(states.At(1, 2001).slot(), 2001u);
}

TEST(RowStatesTest, CountsRiseWithUseAndFallWithAge) {
  RowStates states(2);
  for (std::uint32_t number = 0; number < 10; ++number) states.Add(number % 2, number / 2, number);
  for (int i = 0; i < 5; ++i) states.CountUse(1, 3);
  EXPECT_EQ(states.At(1, 3).count(), 6u);
  EXPECT_EQ(states.At(0, 3).count(), 1u);
  states.Age(10 * kUsesPerAging, 10);  // each row once
  EXPECT_EQ(states.At(1, 3).count(), 3u);
  for (int i = 0; i < 100; ++i) states.Age(10 * kUsesPerAging, 10);
  EXPECT_EQ(states.At(1, 3).count(), 0u);
}

}  // namespace
}  // namespace tarn::server
