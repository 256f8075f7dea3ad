// Shows which texts are accepted as the address of an HTTP server.
#include "net/http/endpoint.h"

#include <gtest/gtest.h>

namespace tarn::net {
namespace {

TEST(HttpEndpointTest, AHostAndAPortAreAccepted) {
  for (const char* text : {"127.0.0.1:8080", "[::1]:8080", "node-7.example.com:8080", "localhost:65535", "0.0.0.0:0"}) {
    const auto endpoint = ParseHttpEndpoint(text);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(ToString(*endpoint), text);
  }
  EXPECT_EQ(ParseHttpEndpoint("[::1]:80")->host, "::1");
  EXPECT_EQ(ParseHttpEndpoint("127.0.0.1:*")->port, 0) << "the system chooses";
}

TEST(HttpEndpointTest, OtherTextIsRefusedWithTheExpectedFormat) {
  for (const char* text :
       {"", ":", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:8o", "::1:80", "[::1]",
        "[]:80", "[localhost]:80", "[127.0.0.1]:80", "a b:80", "http://a:80", "a/b:80"}) {
    const auto endpoint = ParseHttpEndpoint(text);
    ASSERT_FALSE(endpoint) << text;
    EXPECT_EQ(endpoint.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(endpoint.error().message.find("expected HOST:PORT"), std::string::npos) << endpoint.error().message;
  }
  EXPECT_TRUE(ParseHttpEndpoint(std::string(253, 'a') + ":1"));
  EXPECT_FALSE(ParseHttpEndpoint(std::string(254, 'a') + ":1"));
}

TEST(HttpEndpointTest, Addresses) {
  for (const char* address : {"127.0.0.1", "0.0.0.0", "::1", "fe80::1"}) EXPECT_TRUE(IsIpAddress(address)) << address;
  for (const char* name : {"", "localhost", "1.2.3", "1.2.3.4.5", "evil.example"})
    EXPECT_FALSE(IsIpAddress(name)) << name;
}

}  // namespace
}  // namespace tarn::net
