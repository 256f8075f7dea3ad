// Shows that an exchange joins, connects to the shards of a view once, sends requests and hands their answers to the
// client, and waits no longer than it may.
#include "worker/client/client_exchange.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/client/fake_world.h"

namespace tarn::worker {
namespace {

class ClientExchangeTest : public ::testing::Test {
 protected:
  // A turn of a loop around it; the number of new views.
  int TakeTurn() {
    const Expected<bool> connected = exchange_.ConnectShards();
    EXPECT_TRUE(connected);
    exchange_.Send();
    exchange_.Wait(0);
    exchange_.Accept();
    return connected && *connected ? 1 : 0;
  }
  void Join() {
    ASSERT_TRUE(exchange_.Start("fake://scheduler"));
    while (exchange_.client().state() == ClientState::kJoining) TakeTurn();
    ASSERT_EQ(exchange_.client().state(), ClientState::kRunning);
  }

  FakeWorld world_;
  FakeTransport transport_{&world_};
  ClientExchange exchange_{{.rank = 0, .nonce = 1}, &transport_};
};

TEST_F(ClientExchangeTest, AnAddressThatIsNoneIsRefused) {
  const Status started = exchange_.Start("nonsense");
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ClientExchangeTest, ConnectsToTheShardsOfAViewOnce) {
  Join();
  EXPECT_EQ(TakeTurn(), 1);
  EXPECT_EQ(world_.lanes.size(), 3u) << "the scheduler and two shards";
  EXPECT_EQ(TakeTurn(), 0);
}

TEST_F(ClientExchangeTest, ARequestGoesOutWithSendAndItsAnswerComesWithAccept) {
  Join();
  TakeTurn();
  exchange_.client().Tick({}, ClientExchange::Now(), exchange_.outbox());
  EXPECT_FALSE(exchange_.outbox()->empty());
  exchange_.Send();
  EXPECT_TRUE(exchange_.outbox()->empty());
  EXPECT_EQ(world_.ticks.size(), 1u);
  exchange_.Wait(0);
  EXPECT_TRUE(exchange_.client().TakeEvents().empty()) << "Wait hands nothing to the client";
  exchange_.Accept();
  const std::vector<ClientEvent> events = exchange_.client().TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<TickDone>(events[0]).clock, Clock(1));
}

TEST_F(ClientExchangeTest, WhatWasAcceptedIsNotAcceptedAgain) {
  Join();
  TakeTurn();
  exchange_.client().Tick({}, ClientExchange::Now(), exchange_.outbox());
  TakeTurn();
  EXPECT_EQ(exchange_.client().TakeEvents().size(), 1u);
  exchange_.Wait(0);
  exchange_.Accept();
  EXPECT_TRUE(exchange_.client().TakeEvents().empty());
}

}  // namespace
}  // namespace tarn::worker
