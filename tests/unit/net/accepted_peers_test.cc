// Shows that identities become stable numbers, that the table is bounded, and that the peers heard least recently are
// removed first.
#include "net/accepted_peers.h"

#include <gtest/gtest.h>

#include <string>

namespace tarn::net {
namespace {

TEST(AcceptedPeers, NumbersAreStableAndNotReused) {
  AcceptedPeers peers(10);
  const Peer a = peers.Intern("a");
  const Peer b = peers.Intern("b");
  EXPECT_EQ(a.value, kFirstAcceptedPeer);
  EXPECT_NE(a, b);
  EXPECT_EQ(peers.Intern("a"), a);
  EXPECT_EQ(peers.IdentityOf(a), "a");
  peers.Forget(a);
  EXPECT_EQ(peers.IdentityOf(a), "");
  const Peer again = peers.Intern("a");
  EXPECT_NE(again, a);
  EXPECT_NE(again, b);
}

TEST(AcceptedPeers, BeyondTheLimitTheOldestAreRemoved) {
  constexpr std::size_t kMax = 64;
  AcceptedPeers peers(kMax);
  for (std::size_t i = 0; i < kMax; ++i) peers.Intern(std::to_string(i));
  EXPECT_EQ(peers.size(), kMax);
  const Peer kept = peers.Intern("0");  // heard again: now the youngest
  peers.Intern("one more");
  EXPECT_LE(peers.size(), kMax);
  EXPECT_EQ(peers.IdentityOf(kept), "0");
  EXPECT_EQ(peers.IdentityOf(Peer(kFirstAcceptedPeer + 1)), "");
  EXPECT_EQ(peers.IdentityOf(Peer(kFirstAcceptedPeer + kMax - 1)), std::to_string(kMax - 1));
}

TEST(AcceptedPeers, AStreamOfStrangersDoesNotGrowTheTable) {
  AcceptedPeers peers(32);
  for (int i = 0; i < 10'000; ++i) {
    peers.Intern("friend");
    peers.Intern(std::to_string(i));
    ASSERT_LE(peers.size(), 32u);
  }
  EXPECT_EQ(peers.Intern("friend").value, kFirstAcceptedPeer);
}

}  // namespace
}  // namespace tarn::net
