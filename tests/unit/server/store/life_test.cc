// Shows the arithmetic of lives, which rows a boundary lets expire, and the bound on the keys that are counted before
// they have a row.
#include "server/store/life.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "core/hash.h"
#include "server/store/candidates.h"
#include "server/store/page_pool.h"
#include "server/store/standings.h"

namespace tarn::server {
namespace {

TEST(LifeTest, AScoreDecaysAndGrows) {
  const LifeRules rules({.on = true, .score_decay = 0.5f});
  RowLife life = rules.Born(10);
  EXPECT_EQ(life.score, 1.0f);
  life = rules.Touched(life, 12);
  EXPECT_EQ(life.last, 12u);
  EXPECT_EQ(life.score, 1.25f);
  EXPECT_EQ(rules.Touched(life, 11).last, 12u);  // time does not go back
  EXPECT_EQ(rules.Standing({10, 1.0f}), 10u);
  EXPECT_EQ(rules.Standing({10, 4.0f}), 12u);  // 4 is 1 two clocks later
}

TEST(LifeTest, WithoutDecayTheScoreCounts) {
  const LifeRules rules(LifeSpec{.on = true});
  RowLife life = rules.Born(1);
  for (std::uint32_t clock = 2; clock <= 100; ++clock) life = rules.Touched(life, clock);
  EXPECT_EQ(life.score, 100.0f);
  EXPECT_EQ(rules.Standing(life), 100u);
  EXPECT_FALSE(rules.expires());
}

TEST(StandingsTest, TheLowestClassesExpireButNotTheHighest) {
  Standings standings;
  for (std::uint32_t standing : {5u, 5u, 7u, 9u, 9u, 9u}) standings.Add(standing, 1);
  EXPECT_EQ(standings.Decide(0, 6, 1), 0u);
  EXPECT_EQ(standings.Decide(0, 5, 1), 6u);  // both rows of standing 5 expire
  EXPECT_EQ(standings.rows(), 4u);
  EXPECT_EQ(standings.Decide(0, 1, 1), 8u);  // 7 expires too; the three of 9, the highest, stay, though the limit is 1
  EXPECT_EQ(standings.rows(), 3u);
  EXPECT_EQ(standings.Decide(10, 0, 1), 10u);  // unless they are too old
  EXPECT_EQ(standings.rows(), 0u);
  standings.Drop(3, 1);  // no row has this standing: no effect
  EXPECT_EQ(standings.rows(), 0u);
}

TEST(VerdictsTest, AnEarlierStricterVerdictStaysInForce) {
  const LifeRules rules(LifeSpec{.on = true, .rows_max = 1});
  Verdicts verdicts;
  verdicts.Add({.before = 100, .least_standing = 90});
  verdicts.Add({.before = 200, .least_standing = 50});
  EXPECT_TRUE(verdicts.Expired(rules, {80, 1}));
  EXPECT_FALSE(verdicts.Expired(rules, {95, 1}));
  EXPECT_FALSE(verdicts.Expired(rules, {150, 1}));
  verdicts.Add({.before = 300, .least_standing = 160});
  EXPECT_TRUE(verdicts.Expired(rules, {150, 1}));
}

TEST(CandidatesTest, BeyondTheBoundTheKeysWithTheLowestCountsAreForgotten) {
  constexpr std::size_t kMax = 100;
  Candidates candidates(1, 0, kMax);
  for (Key key = 0; key < kMax; ++key) candidates.Set(key, key < 10 ? 5 : 1);
  EXPECT_EQ(candidates.size(), kMax);
  candidates.Set(3, 6);  // it is already counted
  EXPECT_EQ(candidates.size(), kMax);
  candidates.Set(kMax, 1);
  EXPECT_EQ(candidates.size(), 11u);
  EXPECT_EQ(candidates.Count(3), 6u);
  EXPECT_EQ(candidates.Count(9), 5u);
  EXPECT_EQ(candidates.Count(50), 0u);
  EXPECT_EQ(candidates.Count(kMax), 1u);
}

TEST(CandidatesTest, ForgettingKeysKeepsTheCountsOfTheOthers) {
  constexpr std::size_t kMax = 20'000;
  Candidates candidates(9, 2, kMax);
  SplitMix random(3);
  std::map<Key, std::uint32_t> often;
  while (candidates.size() < kMax) {
    const Key key = random.Next();
    const auto count = static_cast<std::uint32_t>(1 + random.Below(9));
    candidates.Set(key, count);
    if (count > 5) often[key] = count;
  }
  candidates.Set(random.Next(), 1);
  EXPECT_EQ(candidates.size(), often.size() + 1);
  for (const auto& [key, count] : often) ASSERT_EQ(candidates.Count(key), count);
  for (const auto& [key, count] : often) candidates.Erase(key);
  EXPECT_EQ(candidates.size(), 1u);
}

TEST(CandidatesTest, APartitionForgetsKeysBeyondItsLimit) {
  Candidates candidates(1, 0, 10 * limits::kCandidatesPartitionMax);
  for (Key key = 0; key < limits::kCandidatesPartitionMax; ++key) candidates.Set(key, key == 7 ? 2 : 1);
  EXPECT_EQ(candidates.size(), limits::kCandidatesPartitionMax);
  candidates.Set(limits::kCandidatesPartitionMax, 1);
  EXPECT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates.Count(7), 2u);
}

TEST(PagePoolTest, RunsDoNotOverlapAndAreReused) {
  PagePool pool;
  SplitMix random(1);
  std::vector<std::pair<unsigned char*, std::size_t>> runs;
  for (int i = 0; i < 3000; ++i) {
    if (runs.size() > 100 && random.Chance(0.5)) {
      const std::size_t at = random.Below(runs.size());
      const auto [run, bytes] = runs[at];
      for (std::size_t b = 0; b < bytes; b += 512) ASSERT_EQ(run[b], static_cast<unsigned char>(bytes / 64));
      pool.Free(run, bytes);
      runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(at));
    }
    const std::size_t bytes = random.Chance(0.01) ? PagePool::kRunBytesMax : 1 + random.Below(60'000);
    auto* run = static_cast<unsigned char*>(pool.Allocate(bytes));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(run) % PagePool::kPageBytes, 0u);
    for (std::size_t b = 0; b < bytes; b += 512) run[b] = static_cast<unsigned char>(bytes / 64);
    runs.emplace_back(run, bytes);
  }
  std::size_t used = 0;
  for (const auto& [run, bytes] : runs) used += bytes;
  EXPECT_LE(pool.reserved_bytes(), used * 3 / 2 + (4 << 20));
}

}  // namespace
}  // namespace tarn::server
