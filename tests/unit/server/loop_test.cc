// Where the shards of a server are bound.
#include "server/loop.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

TEST(ShardEndpointTest, AWildcardIsForAll) { EXPECT_EQ(*ShardEndpoint("tcp://127.0.0.1:*", 3), "tcp://127.0.0.1:*"); }

TEST(ShardEndpointTest, APortCountsUp) {
  EXPECT_EQ(*ShardEndpoint("tcp://127.0.0.1:7800", 0), "tcp://127.0.0.1:7800");
  EXPECT_EQ(*ShardEndpoint("tcp://127.0.0.1:65532", 3), "tcp://127.0.0.1:65535");
  EXPECT_EQ(*ShardEndpoint("tcp://[::1]:7800", 1), "tcp://[::1]:7801");
}

TEST(ShardEndpointTest, RefusesWhatIsNoPort) {
  for (const char* bind : {"tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:x", "tcp://127.0.0.1:65533"})
    EXPECT_FALSE(ShardEndpoint(bind, 3)) << bind;
}

}  // namespace
}  // namespace tarn::server
