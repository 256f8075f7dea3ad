// Shows what a program of a fleet serves over HTTP: its health, whether all of its state machines are ready, and their
// newest metrics, which promtool accepts; that loops never wait for a client; and how to switch the server off.
#include "net/http/status_server.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/net/http/http_client.h"

namespace tarn::net {
namespace {

class StatusServerTest : public testing::Test {
 protected:
  void SetUp() override { Start({.run = "mine", .role = "server", .rank = "3"}); }

  void Start(StatusServerOptions options) {
    server_.reset();
    auto server = StatusServer::Start(process_.get(), options);
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
  }
  HttpAnswer Get(const std::string& path) const { return HttpClient(Port()).Get(path); }
  std::uint16_t Port() const {
    const std::string& url = server_->url();
    return static_cast<std::uint16_t>(std::atoi(url.c_str() + url.rfind(':') + 1));
  }
  static std::unique_ptr<StatusReport> Report(bool ready, std::uint64_t pulls) {
    auto report = std::make_unique<StatusReport>(StatusReport{.role = "shard", .rank = "6", .ready = ready});
    report->metrics.Add(ShardMetric("pulls"), pulls).AddHistogram(WorkerMetric("staleness_clocks"), {pulls, 1});
    return report;
  }

  std::unique_ptr<ProcessContext> process_ = ProcessContext::Start({}).value();
  std::unique_ptr<StatusServer> server_;
};

TEST_F(StatusServerTest, ListensOnLoopbackOnly) {
  EXPECT_TRUE(server_->url().starts_with("http://127.0.0.1:")) << server_->url();
  EXPECT_EQ(Get("/healthz").body, "ok\n");
}

TEST_F(StatusServerTest, IsReadyOnceAllStateMachinesAre) {
  const auto first = server_->AddFeed(), second = server_->AddFeed();
  EXPECT_EQ(Get("/readyz").status, 503);
  first->Put(Report(true, 1));
  second->Put(Report(false, 1));
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(Get("/readyz").body, "not ready: 1 of 2 take part in the run\n");
  second->Put(Report(true, 1));
  EXPECT_EQ(Get("/readyz").status, 200);
  first->Put(Report(false, 1));
  EXPECT_EQ(Get("/readyz").status, 503);
}

TEST_F(StatusServerTest, ServesTheNewestMetricsAndThoseOfTheProcess) {
  const auto feed = server_->AddFeed();
  feed->Put(Report(true, 7));
  feed->Put(Report(true, 8));
  const HttpAnswer answer = Get("/metrics");
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"tarn_shard_pulls_total{run=\"mine\",role=\"shard\",rank=\"6\"} 8\n",
        "process_cpu_seconds_total{run=\"mine\",role=\"server\",rank=\"3\"} ", "process_resident_memory_bytes{",
        "process_virtual_memory_bytes{", "process_open_fds{", "process_max_fds{", "process_start_time_seconds{"})
    EXPECT_NE(answer.body.find(line), std::string::npos) << line << answer.body;
  EXPECT_EQ(Get("/metrics").body.find("rank=\"6\"} 7\n"), std::string::npos);
}

TEST_F(StatusServerTest, PromtoolReportsNoProblem) {
  if (std::system("command -v promtool >/dev/null") != 0) GTEST_SKIP() << "no promtool here (tools/install prometheus)";
  server_->AddFeed()->Put(Report(true, 7));
  const auto path = std::filesystem::temp_directory_path() / ("tarn-metrics-" + std::to_string(::getpid()));
  std::ofstream(path) << Get("/metrics").body;
  EXPECT_EQ(std::system(("promtool check metrics <" + path.string()).c_str()), 0);
  std::filesystem::remove(path);
}

TEST_F(StatusServerTest, LoopsNeverWaitForClients) {
  const auto feed = server_->AddFeed();
  std::atomic<bool> over = false;
  std::vector<std::jthread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&] {
      while (!over) EXPECT_EQ(Get("/metrics").status, 200);
    });
  for (std::uint64_t i = 0; i < 2000; ++i) feed->Put(Report(true, i));
  over = true;
  clients.clear();
  EXPECT_NE(Get("/metrics").body.find("rank=\"6\"} 1999\n"), std::string::npos);
}

TEST_F(StatusServerTest, AFeedMayOutliveTheServer) {
  const auto feed = server_->AddFeed();
  server_.reset();
  feed->Put(Report(true, 1));
  ASSERT_NE(feed->Latest(), nullptr);
  EXPECT_TRUE(feed->Latest()->ready);
}

TEST_F(StatusServerTest, NoneStartsNoServer) {
  Start({.http = "none"});
  EXPECT_EQ(server_->url(), "");
  server_->AddFeed()->Put(Report(true, 1));
}

TEST_F(StatusServerTest, AdvertisesAReachableAddress) {
  Start({.http = "0.0.0.0:0", .insecure = true, .advertise = "node7"});
  EXPECT_TRUE(server_->url().starts_with("http://node7:")) << server_->url();
  HttpClient client(Port());
  client.Send("GET /healthz HTTP/1.1\r\nHost: node7\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 200);
}

TEST_F(StatusServerTest, AnAddressOfLoopbackIsNotReplaced) {
  Start({.advertise = "node7"});
  EXPECT_TRUE(server_->url().starts_with("http://127.0.0.1:")) << server_->url();
}

TEST_F(StatusServerTest, InvalidFlagsAreErrors) {
  const auto code = [this](StatusServerOptions options) {
    return StatusServer::Start(process_.get(), options).error().code;
  };
  EXPECT_EQ(code({.http = "nowhere"}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.http = "0.0.0.0:0"}), ErrorCode::kInvalidArgument) << "neither a token nor --insecure";
  EXPECT_EQ(code({.http = "127.0.0.1:" + std::to_string(Port())}), ErrorCode::kUnavailable);
  EXPECT_EQ(code({.token_file = "/nonexistent/token"}), ErrorCode::kNotFound);
}

TEST_F(StatusServerTest, ATokenFileIsUsed) {
  const auto path = std::filesystem::temp_directory_path() / ("tarn-status-token-" + std::to_string(::getpid()));
  std::ofstream(path) << "0123456789abcdef\n";
  ::chmod(path.c_str(), 0600);
  Start({.http = "0.0.0.0:0", .token_file = path.string()});
  EXPECT_EQ(Get("/healthz").status, 401);
  EXPECT_EQ(HttpClient(Port()).Get("/healthz", "Authorization: Bearer 0123456789abcdef\r\n").status, 200);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tarn::net
