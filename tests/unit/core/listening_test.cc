// Shows that silence of a peer counts only while this process listens.
#include "core/listening.h"

#include <gtest/gtest.h>

namespace tarn {
namespace {

constexpr TimeUs kBreak = 100;

TEST(ListeningTest, SilenceCountsFromTheLastMessageOrTheBeginning) {
  Listening listening;
  listening.Begin(1000);
  EXPECT_EQ(listening.Silence(0, 1050, kBreak), 50) << "nobody could hear before";
  for (TimeUs now = 1100; now <= 2000; now += kBreak) listening.Note(now, kBreak);
  EXPECT_EQ(listening.since(), 1000);
  EXPECT_EQ(listening.Silence(1000, 2000, kBreak), 1000);
  EXPECT_EQ(listening.Silence(1999, 2000, kBreak), 1);
}

TEST(ListeningTest, APauseOfTheProcessRestartsTheSilence) {
  Listening listening;
  listening.Begin(1000);
  listening.Note(1000 + kBreak, kBreak);
  EXPECT_EQ(listening.Silence(1000, 1000 + 2 * kBreak, kBreak), 2 * kBreak) << "as long as a break may be";
  EXPECT_EQ(listening.Silence(1000, 1001 + 2 * kBreak, kBreak), 0) << "one more: it was not running";
  listening.Note(5000, kBreak);
  listening.Note(5000 + kBreak, kBreak);
  EXPECT_EQ(listening.since(), 5000);
  EXPECT_EQ(listening.Silence(1000, 5000 + kBreak, kBreak), kBreak);
}

}  // namespace
}  // namespace tarn
