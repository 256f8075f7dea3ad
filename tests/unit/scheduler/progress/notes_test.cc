// Shows that Notes are taken in order, and that the number of untaken ones is bounded.
#include "scheduler/progress/notes.h"

#include <gtest/gtest.h>

namespace tarn::scheduler {
namespace {

TEST(Notes, AreTakenOnceInOrder) {
  Notes notes;
  notes.Info("a");
  notes.Warn("b");
  const auto taken = notes.Take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].text, "a");
  EXPECT_FALSE(taken[0].warning);
  EXPECT_EQ(taken[1].text, "b");
  EXPECT_TRUE(taken[1].warning);
  EXPECT_TRUE(notes.Take().empty());
}

TEST(Notes, AreBounded) {
  Notes notes;
  for (std::size_t i = 0; i < Notes::kNotesMax; ++i) notes.Info("kept");
  notes.Warn("one past the limit");
  const auto taken = notes.Take();
  EXPECT_EQ(taken.size(), Notes::kNotesMax);
  EXPECT_EQ(taken.back().text, "kept");
}

}  // namespace
}  // namespace tarn::scheduler
