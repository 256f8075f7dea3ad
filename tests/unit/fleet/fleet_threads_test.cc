// Shows that the threads of a whole fleet work together: the scheduler's loop, a server with two shards, their log,
// checkpoint and metrics on the disk's threads, two clients that share memory with the shards, and an HTTP server that
// answers requests all the time. Run with ThreadSanitizer, it finds data races between them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/process_context.h"
#include "net/http/status_server.h"
#include "net/local_endpoint.h"
#include "net/zmq/transport.h"
#include "scheduler/loop.h"
#include "server/loop.h"
#include "tests/unit/net/http/http_client.h"
#include "worker/tarn.h"

namespace tarn {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kWorkers = 2, kShards = 2, kClocks = 60;

bool Eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

class FleetThreads : public testing::Test {
 protected:
  void SetUp() override {
    run_dir_ = fs::temp_directory_path() / fmt::format("tarn-fleet-{}", ::getpid());
    fs::remove_all(run_dir_);
    fs::create_directories(run_dir_ / "checkpoints");
    auto status = net::StatusServer::Start(process_.get(), {.run = "test", .role = "server", .rank = "0"});
    ASSERT_TRUE(status) << status.error().message;
    status_ = *std::move(status);
    StartScheduler();
    StartServer();
  }
  void TearDown() override {
    if (loop_) loop_->RequestStop();
    if (scheduler_.joinable()) scheduler_.join();
    if (shards_.joinable()) shards_.join();
    fs::remove_all(run_dir_);
  }

  void StartScheduler() {
    const auto endpoint = context_.folders().Make(run_dir_.string(), "scheduler");
    ASSERT_TRUE(endpoint) << endpoint.error().message;
    scheduler::LoopOptions options;
    options.job.job.name = "threads";
    options.job.fleet.shards = kShards;
    options.job.fleet.workers = kWorkers;
    options.job.consistency = {ConsistencyMode::kSsp, 3, ApplyMode::kImmediate};
    options.job.storage.durability = Durability::kLog;
    options.run_dir = run_dir_.string();
    options.bind = *endpoint;
    options.run = 4711;
    options.feed = status_->AddFeed();
    transport_ = std::make_unique<net::ZmqTransport>(&context_, net::ZmqTransportOptions{.shm = false});
    loop_ = std::make_unique<scheduler::Loop>(std::move(options), transport_.get());
    scheduler_ = std::thread([this] { scheduler_status_ = loop_->Run(); });
  }

  void StartServer() {
    server::ServerOptions options;
    options.scheduler = run_dir_.string();
    options.shards = kShards;
    options.nonces = {11, 12};
    options.run_dir = run_dir_.string();
    for (std::uint32_t i = 0; i < kShards; ++i) options.feeds.push_back(status_->AddFeed());
    server_ = std::make_unique<server::Server>(std::move(options));
    shards_ = std::thread([this] { server_status_ = server_->Run(); });
  }

  std::string Metrics() const {
    const std::string& url = status_->url();
    return net::HttpClient(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)))).Get("/metrics").body;
  }
  // The sum of a metric's values over all ranks.
  double Sum(const std::string& name) const {
    double sum = 0;
    const std::string text = "\n" + Metrics();
    for (std::size_t at = 0; (at = text.find("\n" + name + "{", at)) != std::string::npos; ++at)
      sum += std::stod(text.substr(text.find("} ", at) + 2));
    return sum;
  }

  // A worker that adds up one in every row that it pushes.
  void Train(std::uint32_t rank, std::atomic<std::uint64_t>* rows, const std::function<void()>& before_leaving) {
    auto client = Client::Connect({.scheduler = run_dir_.string(), .rank = rank});
    ASSERT_TRUE(client) << client.error().message;
    TableSpec spec{.name = "users", .dim = 8};
    spec.optimizer.kind = "sgd";
    spec.optimizer.learning_rate = 1;
    const auto users = client->OpenTable(spec);
    ASSERT_TRUE(users) << users.error().message;
    for (std::uint64_t clock = 0; clock < kClocks; ++clock) {
      std::vector<Key> keys;
      for (Key i = 0; i < 64; ++i) keys.push_back((clock * 7 + i * 13) % 500 << 40);
      ASSERT_TRUE(client->Pull(*users, keys).Wait());
      const std::vector<float> gradients(keys.size() * 8, -1.0f);
      ASSERT_TRUE(client->Push(*users, keys, gradients).Wait());
      *rows += keys.size();
      client->Tick();
    }
    before_leaving();
    ASSERT_TRUE(client->Leave());
  }

  fs::path run_dir_;
  std::unique_ptr<ProcessContext> process_ = ProcessContext::Start({}).value();
  std::unique_ptr<net::StatusServer> status_;
  net::ZmqContext context_;
  std::unique_ptr<net::ZmqTransport> transport_;
  std::unique_ptr<scheduler::Loop> loop_;
  std::unique_ptr<server::Server> server_;
  Status scheduler_status_, server_status_;
  std::thread scheduler_, shards_;
};

TEST_F(FleetThreads, TrainWhileTheirMetricsAreRead) {
  std::atomic<bool> over = false;
  std::jthread watcher([&] {
    while (!over) {
      EXPECT_FALSE(Metrics().empty());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::atomic<std::uint64_t> rows = 0;
  std::atomic<int> trained = 0;
  const auto shares_memory = [&] {
    ++trained;
    EXPECT_TRUE(Eventually([&] { return Sum("tarn_shard_shm_peers") == kShards * kWorkers; }));
    EXPECT_TRUE(Eventually([&] { return trained == kWorkers; }));
  };
  {
    std::vector<std::jthread> workers;
    for (std::uint32_t rank = 0; rank < kWorkers; ++rank)
      workers.emplace_back([&, rank] { Train(rank, &rows, shares_memory); });
  }
  EXPECT_TRUE(Eventually([&] { return Sum("tarn_shard_push_rows_total") == static_cast<double>(rows.load()); }));
  EXPECT_EQ(rows, kWorkers * kClocks * 64);
  EXPECT_GT(Sum("tarn_shard_log_syncs_total"), 0);
  EXPECT_EQ(Sum("tarn_shard_rows"), 500);
  EXPECT_TRUE(Eventually([&] { return Sum("tarn_scheduler_received_messages_total") > 0; }));
  loop_->RequestStop();
  scheduler_.join();
  shards_.join();
  over = true;
  EXPECT_TRUE(scheduler_status_) << scheduler_status_.error().message;
  EXPECT_TRUE(server_status_) << server_status_.error().message;
  EXPECT_EQ(Sum("tarn_shard_checkpoints_total"), kShards) << "the last one, when it was stopped";
  EXPECT_TRUE(fs::exists(run_dir_ / "summary.json"));
}

TEST_F(FleetThreads, StopAtOnceWhileTheyWait) {
  EXPECT_TRUE(
      Eventually([&] { return Sum("tarn_shard_ready") == 0 && Sum("tarn_scheduler_updated_timestamp_seconds") > 0; }));
  server_->RequestStop();
  shards_.join();
  EXPECT_FALSE(server_status_) << "the job was not over";
}

}  // namespace
}  // namespace tarn
