// Shows the endpoints to which shards bind, those that workers use, and that the sockets are connected to the
// scheduler.
#include "server/shard_sockets.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "net/advertise.h"

namespace tarn::server {
namespace {

TEST(ShardEndpointTest, AWildcardPortIsUsedByEveryShard) {
  EXPECT_EQ(*ShardEndpoint("tcp://127.0.0.1:*", 3), "tcp://127.0.0.1:*");
}

TEST(ShardEndpointTest, EachShardHasTheNextPort) {
  EXPECT_EQ(*ShardEndpoint("tcp://127.0.0.1:7800", 0), "tcp://127.0.0.1:7800");
  EXPECT_EQ(*ShardEndpoint("tcp://127.0.0.1:65532", 3), "tcp://127.0.0.1:65535");
  EXPECT_EQ(*ShardEndpoint("tcp://[::1]:7800", 1), "tcp://[::1]:7801");
}

TEST(ShardEndpointTest, EachShardHasAUnixSocketOfItsOwn) {
  EXPECT_EQ(*ShardEndpoint("ipc:///run/server", 0), "ipc:///run/server");
  EXPECT_EQ(*ShardEndpoint("ipc:///run/server", 2), "ipc:///run/server-2");
}

TEST(ShardEndpointTest, RefusesAnInvalidPort) {
  for (const char* bind : {"tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:x", "tcp://127.0.0.1:4294967295"})
    EXPECT_FALSE(ShardEndpoint(bind, 3)) << bind;
  const auto above = ShardEndpoint("tcp://127.0.0.1:65533", 3);
  ASSERT_FALSE(above);
  EXPECT_EQ(above.error().message,
            "--bind tcp://127.0.0.1:65533: shard 3 of this server would have port 65536, expected at most 65535");
}

class ShardSocketsTest : public testing::Test {
 protected:
  ShardSocketsTest() {
    options_.scheduler = scheduler_.Bind("tcp://127.0.0.1:*").value();
    options_.rank = ServerRank(1);
    options_.shards = 2;
    options_.nonces = {7, 8};
    options_.bind = "tcp://0.0.0.0:*";
    options_.insecure = true;
  }

  net::ZmqContext context_;
  net::ZmqTransport scheduler_{&context_, {.insecure = true}};
  ServerOptions options_;
};

TEST_F(ShardSocketsTest, OpenConnectsToTheScheduler) {
  ShardSockets sockets(&context_, options_, 1);
  const auto endpoint = sockets.Open();
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  EXPECT_FALSE(net::IsWildcard(*endpoint)) << *endpoint;
  std::vector<net::Received> received, answers;
  for (int i = 0; i < 1'000 && received.empty(); ++i) {  // messages are lost until the connection exists
    sockets.transport().Send(kSchedulerPeer, {.sender = {Role::kShard, 3, {}}, .body = Heartbeat{}});
    sockets.transport().Receive(&answers, 1, 1'000);
    scheduler_.Receive(&received, 1, 10'000);
  }
  ASSERT_FALSE(received.empty());
  EXPECT_EQ(received[0].message.sender.rank, 3u);
}

TEST_F(ShardSocketsTest, AnInvalidEndpointIsAnError) {
  options_.bind = "tcp://127.0.0.1:65535";
  const auto endpoint = ShardSockets(&context_, options_, 1).Open();
  ASSERT_FALSE(endpoint);
  EXPECT_EQ(endpoint.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ShardSocketsTest, TheDelaysAreThoseOfTheShard) {
  std::optional<ShardId> delayed;
  options_.slow_network = [&](ShardId shard) {
    delayed = shard;
    return net::SlowTransportOptions{.latency = [] { return TimeUs{0}; }};
  };
  ShardSockets sockets(&context_, options_, 1);
  EXPECT_EQ(delayed, ShardId(3));
  EXPECT_NE(dynamic_cast<net::SlowTransport*>(&sockets.transport()), nullptr);
}

}  // namespace
}  // namespace tarn::server
