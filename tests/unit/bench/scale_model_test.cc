// Shows properties that the model of large fleets (bench/scale_model) must have for any costs.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "bench/scale_model/costs.h"
#include "bench/scale_model/fleet_model.h"
#include "bench/scale_model/frames.h"
#include "bench/scale_model/machine.h"
#include "core/hash.h"
#include "core/limits.h"

namespace tarn::scale {
namespace {

constexpr double kBatchNs = 8e6;
constexpr std::uint32_t kBatchRows = 64;

// A small job of logistic regression on random rows with 4 keys each.
class ScaleModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "scale_model_test";
    std::filesystem::create_directories(folder_);
    std::ofstream out(folder_ / "train.libsvm");
    SplitMix random(3);
    for (int row = 0; row < 1024; ++row) {
      out << (row % 2);
      for (int key = 1; key <= 4; ++key) out << ' ' << 1000 * key + random.Below(500) << ":1";
      out << '\n';
    }
    costs_[Work::kCompute].message_ns = kBatchNs;
  }

  // Samples a second of a fleet.
  FleetResult RunIt(const FleetOptions& options, ConsistencySection consistency = {}) {
    Job job;
    job.data.dir = folder_.string();
    job.data.train = "train.libsvm";
    job.data.format = DataFormat::kLibsvm;
    job.consistency = consistency;
    auto workload = Workload::Make(job, {.batch_rows = kBatchRows});
    if (!workload) ADD_FAILURE() << workload.error().message;
    if (options.stragglers.batch_share == 1) return RunFleet(job, options, costs_, workload->get(), nullptr);
    auto slow = Workload::Make(job, {.batch_rows = std::uint32_t(kBatchRows * options.stragglers.batch_share)});
    return RunFleet(job, options, costs_, workload->get(), nullptr, slow->get());
  }

  static FleetOptions Fleet(std::uint32_t workers, std::uint32_t servers) {
    FleetOptions options{.workers = workers, .servers = servers, .warm_up = 2, .clocks = 8};
    options.network = {.gbit_per_second = 0, .latency_us = 0};
    options.stragglers.share = 0;
    return options;
  }

  std::filesystem::path folder_;
  Costs costs_;
};

TEST_F(ScaleModel, AClockOfOneWorkerWithoutCostsIsItsComputation) {
  EXPECT_NEAR(RunIt(Fleet(1, 1)).clock_seconds, kBatchNs * 1e-9, 1e-9);
}

TEST_F(ScaleModel, WithoutCostsSpeedIsProportionalToTheWorkers) {
  const FleetResult result = RunIt(Fleet(6, 4));
  EXPECT_NEAR(result.samples_per_second, 6 * kBatchRows / (kBatchNs * 1e-9), 1);
  EXPECT_NEAR(result.worker_compute, 1, 1e-6);
}

// A clock consists of the replies with rows, the computation, the pushes, their acknowledgements, and the ticks. The
// pulls of the next clock already wait at the shard, so four latencies are added: reply, push, acknowledgement and
// tick.
TEST_F(ScaleModel, AClockContainsFourLatencies) {
  FleetOptions options = Fleet(2, 1);
  options.network.latency_us = 500;
  EXPECT_NEAR(RunIt(options).clock_seconds, kBatchNs * 1e-9 + 4 * 500e-6, 2e-6);
}

TEST_F(ScaleModel, ASlowWorkerDelaysBspButNotAsp) {
  FleetOptions options = Fleet(16, 1);
  options.clocks = 40;
  options.stragglers = {.share = 0.15, .times_slower = 2, .period_seconds = 0};
  const double ideal = 16 * kBatchRows / (kBatchNs * 1e-9);
  const double bsp = RunIt(options).samples_per_second;
  const double asp = RunIt(options, {.mode = ConsistencyMode::kAsp, .apply = ApplyMode::kImmediate}).samples_per_second;
  EXPECT_NEAR(bsp, ideal / 2, ideal * 0.001);
  EXPECT_GT(asp, ideal * 0.75);
  EXPECT_LT(asp, ideal * 0.999);
}

TEST_F(ScaleModel, ASlowWorkerWithASmallerBatchDoesNotDelayBsp) {
  costs_[Work::kCompute] = {.row_ns = kBatchNs / kBatchRows};
  FleetOptions options = Fleet(16, 1);
  options.stragglers = {.share = 0.15, .servers = false, .batch_share = 0.5, .times_slower = 2, .period_seconds = 0};
  EXPECT_NEAR(RunIt(options).clock_seconds, kBatchNs * 1e-9, 1e-9);
  options.stragglers.batch_share = 1;
  EXPECT_NEAR(RunIt(options).clock_seconds, 2 * kBatchNs * 1e-9, 1e-9);
  options.stragglers.workers = false;
  EXPECT_NEAR(RunIt(options).clock_seconds, kBatchNs * 1e-9, 1e-9);
}

TEST_F(ScaleModel, ALinkIsNoFasterThanItsBandwidth) {
  FleetOptions options = Fleet(4, 1);
  options.network.gbit_per_second = 0.001;
  const FleetResult result = RunIt(options);
  EXPECT_GT(result.link_busiest, 0.4);  // one direction after the other
  EXPECT_LE(result.link_busiest, 1.0 + 1e-6);
  // All bytes of a clock pass the server's link, which has two directions.
  EXPECT_GE(result.clock_seconds, result.bytes_per_clock / 2 * 8 / 1e6);
}

TEST_F(ScaleModel, CostsOfAServerAreItsBusyTime) {
  costs_[Work::kGather].message_ns = 1e6;
  const FleetResult result = RunIt(Fleet(3, 1));
  // After the computation, the server handles one push of each worker per clock, one after the other.
  EXPECT_NEAR(result.clock_seconds, (kBatchNs + 3e6) * 1e-9, 1e-8);
  EXPECT_NEAR(result.server_busy, 3e6 / (kBatchNs + 3e6), 1e-3);
}

// Answers that arrive during a turn are handled together in the next turn.
TEST_F(ScaleModel, AWorkerSettlesOncePerTurnNotPerMessage) {
  constexpr double kSettleNs = 1e6;
  const FleetResult without = RunIt(Fleet(1, 64));
  costs_[Work::kSettle].message_ns = kSettleNs;
  const FleetResult with = RunIt(Fleet(1, 64));
  const double settles = (with.clock_seconds - without.clock_seconds) / (kSettleNs * 1e-9);
  EXPECT_GE(settles, 1);
  EXPECT_LT(settles, without.messages_per_clock / 2 / 4);  // half of the messages are received by the worker
}

TEST_F(ScaleModel, TheSameSeedGivesTheSameTimes) {
  FleetOptions options = Fleet(8, 4);
  options.network = {};
  options.stragglers = {.share = 0.2, .times_slower = 2, .period_seconds = 0.02};
  const FleetResult first = RunIt(options), second = RunIt(options);
  EXPECT_EQ(first.clock_seconds, second.clock_seconds);
  EXPECT_EQ(first.events, second.events);
  options.seed = 2;
  EXPECT_NE(first.clock_seconds, RunIt(options).clock_seconds);
}

TEST(Frames, SmallMessagesToANodeShareOneAndLargeOnesKeepTheirPlace) {
  ModelNode a, b;
  const auto message = [](ModelNode* to, double bytes) {
    return Unsent{to, {Peer(), Message(), Extent{.copies = 1, .bytes = bytes}, 0}};
  };
  std::vector<Unsent> messages;
  for (const auto& [to, bytes] :
       std::vector<std::pair<ModelNode*, double>>{{&a, 100}, {&b, 1}, {&a, 200}, {&a, 2e4}, {&a, 3}})
    messages.push_back(message(to, bytes));
  for (std::size_t i = 0; i < limits::kBundleMessagesMax; ++i) messages.push_back(message(&b, 1));
  std::vector<std::pair<ModelNode*, double>> found;
  for (const Frame& frame : FramesOf(std::move(messages))) {
    EXPECT_EQ(frame.worker.frames, 1);
    found.emplace_back(frame.to, frame.worker.bytes);
  }
  const double full = limits::kBundleMessagesMax;
  EXPECT_EQ(found, (std::vector<std::pair<ModelNode*, double>>{{&a, 300}, {&a, 2e4}, {&b, full}, {&a, 3}, {&b, 1}}));
}

TEST(Frames, ABundleOfServersHasOneFramePerServer) {
  ModelNode bundle;
  std::vector<Unsent> messages;
  for (const double copies : {4.0, 3.0})
    messages.push_back({&bundle, {Peer(), Message(), Extent{.copies = copies, .bytes = 400, .part = 0.25}, 0}});
  const std::vector<Frame> frames = FramesOf(std::move(messages));
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].worker.frames, 4);
  EXPECT_EQ(frames[0].worker.bytes, 800);
  EXPECT_EQ(frames[0].server.frames, 1);
  EXPECT_EQ(frames[0].server.bytes, 200);
}

TEST(Machine, AThreadThatWakesWaitsForTheOneThatHasTheCore) {
  sim::EventQueue events;
  Host host(&events, 2, 1.5);
  Thread a(&host, 0), b(&host, 0), c(&host, 1);
  Ns done[3] = {};
  a.Run(1000, [&] { done[0] = events.now(); });
  b.Run(1000, [&] { done[1] = events.now(); });
  c.Run(4000, [&] { done[2] = events.now(); });
  while (events.RunOne()) {
  }
  // While both cores are busy everything takes 1.5 times as long. When `a` and `b` are done, `c` has done 2000.
  EXPECT_NEAR(double(done[0]), 1500, 2);
  EXPECT_NEAR(double(done[1]), 3000, 2);
  EXPECT_NEAR(double(done[2]), 3000 + 2000, 3);
}

TEST(Machine, ThreadsTakeTurnsAfterEachTimeSlice) {
  sim::EventQueue events;
  Host host(&events, 1, 1);
  Thread a(&host, 0), b(&host, 0);
  Ns done[2] = {};
  a.Run(10e6, [&] { done[0] = events.now(); });
  b.Run(5e6, [&] { done[1] = events.now(); });
  while (events.RunOne()) {
  }
  // a: 0 to 4, 8 to 12, 13 to 15 ms; b: 4 to 8, 12 to 13 ms.
  EXPECT_NEAR(double(done[0]), 15e6, 5);
  EXPECT_NEAR(double(done[1]), 13e6, 5);
}

TEST(Machine, ATimeSliceIsTimeNotWork) {
  sim::EventQueue events;
  Host host(&events, 2, 2);
  Thread a(&host, 0), b(&host, 0), busy(&host, 1);
  Ns done = 0;
  busy.Run(20e6, [] {});
  a.Run(10e6, [] {});
  b.Run(2e6, [&] { done = events.now(); });
  while (events.RunOne()) {
  }
  EXPECT_NEAR(double(done), 8e6, 5);  // a: 0 to 4 ms; b: 4 to 8 ms, half as fast
}

TEST(Machine, AThreadWithMoreWorkKeepsItsCore) {
  sim::EventQueue events;
  Host host(&events, 1, 1);
  Thread a(&host, 0), b(&host, 0);
  std::vector<std::pair<char, Ns>> done;
  a.Run(1000, [&] {
    b.Run(1000, [&] { done.emplace_back('b', events.now()); });
    a.Run(1000, [&] { done.emplace_back('a', events.now()); });
  });
  while (events.RunOne()) {
  }
  EXPECT_EQ(done, (std::vector<std::pair<char, Ns>>{{'a', 2000}, {'b', 3000}}));
}

TEST(Costs, AFitFindsTheLineThroughNoise) {
  SplitMix random(1);
  std::vector<Sample> samples;
  for (int i = 0; i < 2000; ++i) {
    const Amount amount{1, double(random.Below(1000)), 0, i % 2 == 0 ? 1.0 : 256.0, 1.0 + double(random.Below(7))};
    double ns = (700 + 5 * amount.rows + 2 * amount.other + 300 * amount.tables) * (0.95 + 0.1 * random.Unit());
    if (i % 50 == 0) ns *= 100;  // lost its core
    samples.push_back({amount, ns});
  }
  const Line line = Fit(samples);
  EXPECT_NEAR(line.message_ns, 700, 50);
  EXPECT_NEAR(line.row_ns, 5, 0.25);
  EXPECT_NEAR(line.third_ns, 2, 0.15);
  EXPECT_NEAR(line.table_ns, 300, 15);
  EXPECT_EQ(line.dense_ns, 0);
}

TEST(Costs, AFileIsReadBackAndErrorsAreNamed) {
  Costs costs;
  costs[Work::kServe] = {1.5, 2.25, 3, 0.1, 40};
  costs.busy_slowdown = 1.25;
  const std::string path = testing::TempDir() + "/costs.txt";
  std::ofstream(path) << ToText(costs);
  const auto read = ReadCosts(path);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(ToText(*read), ToText(costs));
  std::ofstream(path, std::ios::app) << "serve.rwo_ns 3\n";
  const auto wrong = ReadCosts(path);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("serve.rwo_ns"), std::string::npos) << wrong.error().message;
  EXPECT_EQ(ReadCosts("/nowhere/costs.txt").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tarn::scale
