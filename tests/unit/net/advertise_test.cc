// Shows that an endpoint bound to all interfaces is advertised as an address that others can connect to, that other
// endpoints are not changed, and that a given host replaces either.
#include "net/advertise.h"

#include <gtest/gtest.h>

#include <string>

#include "core/limits.h"

namespace tarn::net {
namespace {

TEST(Advertise, RecognizesWildcards) {
  for (const char* endpoint : {"tcp://0.0.0.0:7700", "tcp://*:7700", "tcp://[::]:7700"})
    EXPECT_TRUE(IsWildcard(endpoint)) << endpoint;
  for (const char* endpoint :
       {"tcp://127.0.0.1:7700", "tcp://10.0.0.0:1", "tcp://host:*", "ipc:///tmp/x", "tcp://", ""})
    EXPECT_FALSE(IsWildcard(endpoint)) << endpoint;
}

TEST(Advertise, AnAddressIsNotChanged) {
  EXPECT_EQ(AdvertisedEndpoint("tcp://10.1.2.3:7700", "", "").value(), "tcp://10.1.2.3:7700");
  EXPECT_EQ(AdvertisedEndpoint("ipc:///tmp/x", "", "tcp://127.0.0.1:1").value(), "ipc:///tmp/x");
}

TEST(Advertise, AGivenHostReplacesTheAddress) {
  EXPECT_EQ(AdvertisedEndpoint("tcp://0.0.0.0:7700", "node7", "tcp://127.0.0.1:1").value(), "tcp://node7:7700");
  EXPECT_EQ(AdvertisedEndpoint("tcp://10.1.2.3:7700", "203.0.113.9", "").value(), "tcp://203.0.113.9:7700");
  EXPECT_EQ(AdvertisedEndpoint("ipc:///tmp/x", "node7", "").error().code, ErrorCode::kInvalidArgument);
}

TEST(Advertise, AnEndpointThatNoMessageCanHaveIsRefused) {
  for (const std::string& path : {std::string("/tmp/caf\xe9"), "/" + std::string(limits::kEndpointBytesMax, 'x')}) {
    const auto refused = AdvertisedEndpoint("ipc://" + path, "", "");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Advertise, AWildcardBecomesTheLocalAddressTowardsThePeer) {
  const auto endpoint = AdvertisedEndpoint("tcp://0.0.0.0:7700", "", "tcp://127.0.0.1:7701");
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  EXPECT_FALSE(IsWildcard(*endpoint)) << *endpoint;
  EXPECT_TRUE(endpoint->ends_with(":7700")) << *endpoint;
}

TEST(Advertise, APeerOfTheOtherAddressFamilyIsNoError) {
  const auto endpoint = AdvertisedEndpoint("tcp://0.0.0.0:7700", "", "tcp://[::1]:7701");
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  EXPECT_FALSE(IsWildcard(*endpoint)) << *endpoint;
  EXPECT_TRUE(endpoint->ends_with(":7700")) << *endpoint;
  // No IPv4 address leads to this peer: the address of the default route, or an error that says what to do.
  const auto far = AdvertisedEndpoint("tcp://0.0.0.0:7700", "", "tcp://[2001:db8::1]:7701");
  if (!far) {
    EXPECT_NE(far.error().message.find("--advertise"), std::string::npos) << far.error().message;
  }
}

TEST(Advertise, WithoutAPeerItIsTheDefaultRoutesAddressOrAnError) {
  const auto endpoint = AdvertisedEndpoint("tcp://*:7700", "", "");
  if (endpoint) {
    EXPECT_FALSE(IsWildcard(*endpoint)) << *endpoint;
    EXPECT_FALSE(endpoint->starts_with("tcp://127.")) << *endpoint;
  } else {
    EXPECT_NE(endpoint.error().message.find("--advertise"), std::string::npos) << endpoint.error().message;
  }
}

TEST(Advertise, TheErrorNamesAnUnknownPeer) {
  const auto endpoint = AdvertisedEndpoint("tcp://*:7700", "", "tcp://no such host:1");
  ASSERT_FALSE(endpoint);
  EXPECT_NE(endpoint.error().message.find("no such host"), std::string::npos);
}

}  // namespace
}  // namespace tarn::net
