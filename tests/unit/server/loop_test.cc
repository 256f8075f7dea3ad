// Shows the endpoints that the shards of a server report to the scheduler.
#include "server/loop.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "net/advertise.h"
#include "net/zmq/transport.h"

namespace tarn::server {
namespace {

// Runs a server that binds to `bind`. Returns the endpoint in its Join.
std::string EndpointInJoin(const std::string& bind, const std::string& advertise) {
  net::ZmqContext context;
  net::ZmqTransport scheduler(&context, {.insecure = true});
  ServerOptions options;
  options.scheduler = scheduler.Bind("tcp://127.0.0.1:*").value();
  options.nonces = {7};
  options.bind = bind;
  options.advertise = advertise;
  options.insecure = true;
  Server server(options);
  std::thread thread([&] { (void)server.Run(); });
  std::string endpoint;
  std::vector<net::Received> received;
  while (received.empty()) scheduler.Receive(&received, 1, -1);
  if (const auto* join = std::get_if<Join>(&received[0].message.body)) endpoint = join->endpoint;
  server.RequestStop();
  thread.join();
  return endpoint;
}

TEST(ServerTest, SendsTheSchedulerAnAddressThatOthersCanConnectTo) {
  const std::string endpoint = EndpointInJoin("tcp://0.0.0.0:*", "");
  EXPECT_TRUE(endpoint.starts_with("tcp://")) << endpoint;
  EXPECT_FALSE(net::IsWildcard(endpoint)) << endpoint;
  EXPECT_TRUE(EndpointInJoin("tcp://*:*", "node7").starts_with("tcp://node7:"));
  EXPECT_TRUE(EndpointInJoin("tcp://127.0.0.1:*", "").starts_with("tcp://127.0.0.1:"));
}

}  // namespace
}  // namespace tarn::server
