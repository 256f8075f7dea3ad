// Shows when a log line about a wait is due.
#include "core/wait_notes.h"

#include <gtest/gtest.h>

namespace tarn {
namespace {

TEST(WaitNotesTest, OneLineIsDuePerPeriodAndANewWaitBeginsAnew) {
  WaitNotes notes;
  EXPECT_FALSE(notes.IsDue(kWaitNotePeriodUs - 1));
  EXPECT_TRUE(notes.IsDue(kWaitNotePeriodUs + 5));
  EXPECT_FALSE(notes.IsDue(2 * kWaitNotePeriodUs + 4));
  EXPECT_TRUE(notes.IsDue(2 * kWaitNotePeriodUs + 5));
  EXPECT_FALSE(notes.IsDue(0));
  EXPECT_TRUE(notes.IsDue(kWaitNotePeriodUs));
}

}  // namespace
}  // namespace tarn
