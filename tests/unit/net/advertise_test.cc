// An endpoint that is bound to all interfaces is told to others as one that they can connect to; others stay as they
// are, and a host that is given counts for both.
#include "net/advertise.h"

#include <gtest/gtest.h>

namespace tarn::net {
namespace {

TEST(Advertise, KnowsWildcards) {
  for (const char* endpoint : {"tcp://0.0.0.0:7700", "tcp://*:7700", "tcp://[::]:7700"})
    EXPECT_TRUE(IsWildcard(endpoint)) << endpoint;
  for (const char* endpoint :
       {"tcp://127.0.0.1:7700", "tcp://10.0.0.0:1", "tcp://host:*", "ipc:///tmp/x", "tcp://", ""})
    EXPECT_FALSE(IsWildcard(endpoint)) << endpoint;
}

TEST(Advertise, AnAddressStaysAsItIs) {
  EXPECT_EQ(AdvertisedEndpoint("tcp://10.1.2.3:7700", "", "").value(), "tcp://10.1.2.3:7700");
  EXPECT_EQ(AdvertisedEndpoint("ipc:///tmp/x", "", "tcp://127.0.0.1:1").value(), "ipc:///tmp/x");
}

TEST(Advertise, AHostThatIsGivenCounts) {
  EXPECT_EQ(AdvertisedEndpoint("tcp://0.0.0.0:7700", "node7", "tcp://127.0.0.1:1").value(), "tcp://node7:7700");
  EXPECT_EQ(AdvertisedEndpoint("tcp://10.1.2.3:7700", "203.0.113.9", "").value(), "tcp://203.0.113.9:7700");
  EXPECT_EQ(AdvertisedEndpoint("ipc:///tmp/x", "node7", "").error().code, ErrorCode::kInvalidArgument);
}

TEST(Advertise, AWildcardBecomesAnAddressOnTheWayToThePeer) {
  const auto endpoint = AdvertisedEndpoint("tcp://0.0.0.0:7700", "", "tcp://127.0.0.1:7701");
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  EXPECT_FALSE(IsWildcard(*endpoint)) << *endpoint;
  EXPECT_TRUE(endpoint->ends_with(":7700")) << *endpoint;
}

TEST(Advertise, APeerOfTheOtherFamilyIsNoObstacle) {
  const auto endpoint = AdvertisedEndpoint("tcp://0.0.0.0:7700", "", "tcp://[::1]:7701");
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  EXPECT_FALSE(IsWildcard(*endpoint)) << *endpoint;
  EXPECT_TRUE(endpoint->ends_with(":7700")) << *endpoint;
  // One that no IPv4 address leads to: the way out, or what to do without one.
  const auto far = AdvertisedEndpoint("tcp://0.0.0.0:7700", "", "tcp://[2001:db8::1]:7701");
  if (!far) {
    EXPECT_NE(far.error().message.find("--advertise"), std::string::npos) << far.error().message;
  }
}

TEST(Advertise, WithoutAPeerItIsTheWayOutOrAnErrorThatSaysWhatToDo) {
  const auto endpoint = AdvertisedEndpoint("tcp://*:7700", "", "");
  if (endpoint) {
    EXPECT_FALSE(IsWildcard(*endpoint)) << *endpoint;
    EXPECT_FALSE(endpoint->starts_with("tcp://127.")) << *endpoint;
  } else {
    EXPECT_NE(endpoint.error().message.find("--advertise"), std::string::npos) << endpoint.error().message;
  }
}

TEST(Advertise, AnUnknownPeerIsNamed) {
  const auto endpoint = AdvertisedEndpoint("tcp://*:7700", "", "tcp://no such host:1");
  ASSERT_FALSE(endpoint);
  EXPECT_NE(endpoint.error().message.find("no such host"), std::string::npos);
}

}  // namespace
}  // namespace tarn::net
