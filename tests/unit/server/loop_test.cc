// Shows the endpoints that the shards of a server report to the scheduler, and which signals end a server that waits
// for its scheduler.
#include "server/loop.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

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

// Runs a server whose scheduler never answers, and ends it with `end`. Returns the status of its Run.
template <typename End>
Status RunUntil(const std::string& scheduler, const End& end) {
  ServerOptions options;
  options.scheduler = scheduler;
  options.nonces = {7};
  options.insecure = true;
  Server server(options);
  Status status;
  std::thread thread([&] { status = server.Run(); });
  end(&server);
  thread.join();
  return status;
}

TEST(ServerTest, EndsWhileItWaitsForItsScheduler) {
  std::string folder = std::filesystem::temp_directory_path() / "tarn-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const std::string& scheduler : {folder, std::string("tcp://127.0.0.1:9")}) {
    for (const bool interrupt : {false, true}) {
      const Status status =
          RunUntil(scheduler, [&](Server* server) { interrupt ? server->RequestInterrupt() : server->RequestStop(); });
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
      EXPECT_NE(status.error().message.find("terminated by a signal"), std::string::npos) << status.error().message;
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(ServerTest, LeavesCtrlCToASchedulerThatHasAnswered) {
  net::ZmqContext context;
  net::ZmqTransport scheduler(&context, {.insecure = true});
  const auto next_join = [&] {
    std::vector<net::Received> received;
    while (received.empty()) scheduler.Receive(&received, 1, -1);
    EXPECT_TRUE(std::holds_alternative<Join>(received[0].message.body));
    return received[0].from;
  };
  const Status status = RunUntil(scheduler.Bind("tcp://127.0.0.1:*").value(), [&](Server* server) {
    Message answer;
    answer.sender.role = Role::kScheduler;
    answer.body = HeartbeatAck{};
    scheduler.Send(next_join(), answer);
    next_join();  // it is repeated after a second: the answer has arrived by then
    server->RequestInterrupt();
    next_join();
    server->RequestStop();
  });
  EXPECT_FALSE(status);
}

}  // namespace
}  // namespace tarn::server
