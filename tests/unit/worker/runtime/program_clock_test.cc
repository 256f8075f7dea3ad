// Shows that a program's clock agrees with its client's once all ticks are started, whatever the client skips between
// their submission and their start, and that it does not run ahead meanwhile.
#include "worker/runtime/program_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>

namespace tarn::worker {
namespace {

// A program's clock, and the clock of the client that starts its ticks later.
struct Pair {
  void Tick() {
    program.OnTick();
    submitted.push_back(std::nullopt);
  }
  void TickTo(std::uint64_t to) {
    program.OnTickTo(Clock(to));
    submitted.emplace_back(Clock(to));
  }
  void Skip(std::uint64_t clocks) {
    client += clocks;
    program.OnSkip(clocks);
  }
  void Start() {
    const std::optional<Clock> to = submitted.front();
    submitted.pop_front();
    if (to) program.OnStart(*to, Clock(client));
    client = to ? std::max(client, to->value) : client + 1;
  }
  // The client's clock after all submitted ticks.
  std::uint64_t expected() const {
    std::uint64_t clock = client;
    for (const std::optional<Clock>& to : submitted) clock = to ? std::max(clock, to->value) : clock + 1;
    return clock;
  }

  ProgramClock program;
  std::uint64_t client = 0;
  std::deque<std::optional<Clock>> submitted;
};

TEST(ProgramClock, ASkipBetweenASubmittedJumpAndItsStartIsNotCountedTwice) {
  Pair pair;
  pair.program.Begin(Clock(3));
  pair.client = 3;
  pair.TickTo(8);
  EXPECT_EQ(pair.program.now(), Clock(8));
  pair.Skip(3);  // rows for clock 3 have arrived from open clock 6
  EXPECT_EQ(pair.program.now(), Clock(8));
  pair.Start();
  EXPECT_EQ(pair.client, 8u);
  EXPECT_EQ(pair.program.now(), Clock(8));
  pair.Skip(2);
  EXPECT_EQ(pair.program.now(), Clock(10));
}

TEST(ProgramClock, ASkipBeyondAJumpCounts) {
  Pair pair;
  pair.TickTo(4);
  pair.Tick();
  pair.Skip(6);
  EXPECT_EQ(pair.program.now(), Clock(7));
  pair.Start();
  pair.Start();
  EXPECT_EQ(pair.client, 7u);
  EXPECT_EQ(pair.program.now(), Clock(7));
}

TEST(ProgramClock, AJumpToAnEarlierClockChangesNothing) {
  Pair pair;
  pair.Skip(9);
  pair.TickTo(4);
  pair.Start();
  EXPECT_EQ(pair.program.now(), Clock(9));
}

TEST(ProgramClock, AgreesWithTheClientInAnyOrderOfTicksSkipsAndStarts) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    Pair pair;
    for (int step = 0; step < 100; ++step) {
      switch (random() % 4) {
        case 0: pair.Tick(); break;
        case 1: pair.TickTo(pair.program.now().value + random() % 6); break;
        case 2: pair.Skip(random() % 5); break;
        default:
          if (!pair.submitted.empty()) pair.Start();
      }
      ASSERT_EQ(pair.program.now(), Clock(pair.expected())) << "seed " << seed << ", step " << step;
    }
  }
}

// Two threads: the clock of a tick that is submitted before another thread's jump may be counted after it.
TEST(ProgramClock, AgreesAfterTicksThatWereStartedInAnotherOrder) {
  ProgramClock program;
  program.OnTickTo(Clock(5));
  program.OnTick();
  EXPECT_EQ(program.now(), Clock(6));
  program.OnStart(Clock(5), Clock(1));  // the client has started the tick first
  EXPECT_EQ(program.now(), Clock(5));
}

}  // namespace
}  // namespace tarn::worker
