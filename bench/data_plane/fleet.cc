#include "bench/data_plane/fleet.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "bench/data_plane/measure.h"
#include "net/zmq/context.h"

namespace tarn::bench {
namespace {

constexpr double kStartSeconds = 60;

constexpr const char* kJob = R"([job]
name = "data-plane"
[fleet]
servers = {}
shards = 1
workers = 1
lease_seconds = 60
busy_poll_us = {}
lanes = {}
[consistency]
mode = "asp"
[storage]
durability = "none"
)";

}  // namespace

Expected<std::unique_ptr<Fleet>> Fleet::Start(const FleetOptions& options) {
  std::unique_ptr<Fleet> fleet(new Fleet(options));
  TARN_RETURN_IF_ERROR(fleet->StartScheduler());
  TARN_RETURN_IF_ERROR(fleet->StartServers());
  return fleet;
}

Status Fleet::StartScheduler() {
  const std::string& folder = folder_.path();
  std::ofstream(folder + "/job.toml") << fmt::format(fmt::runtime(kJob), options_.servers, options_.busy_poll_us,
                                                     options_.lanes);
  scheduler_ = Spawn({options_.programs + "/tarn-scheduler", "--job", folder + "/job.toml", "--run-dir",
                      folder + "/run", "--bind", "tcp://127.0.0.1:*", "--insecure", "--port-file", folder + "/address"},
                     folder + "/output");
  for (const double begin = Now(); Now() - begin < kStartSeconds;) {
    scheduler_endpoint_ = ReadText(folder + "/address");
    while (scheduler_endpoint_.ends_with('\n')) scheduler_endpoint_.pop_back();
    if (!scheduler_endpoint_.empty()) return {};
    TARN_RETURN_IF_ERROR(CheckAlive());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Fail(ErrorCode::kTimeout, fmt::format("tarn-scheduler has not bound a port in {} s", kStartSeconds));
}

Status Fleet::StartServers() {
  for (std::uint32_t rank = 0; rank < options_.servers; ++rank) {
    const std::string bind = options_.transport == "ipc" ? fmt::format("ipc://{}/server-{}", folder_.path(), rank)
                                                         : std::string("tcp://127.0.0.1:*");
    std::vector<std::string> command = {options_.programs + "/tarn-server",
                                        "--scheduler",
                                        scheduler_endpoint_,
                                        "--rank",
                                        std::to_string(rank),
                                        "--shards",
                                        "1",
                                        "--run-dir",
                                        folder_.path() + "/run",
                                        "--bind",
                                        bind,
                                        "--insecure"};
    if (options_.transport != "shm") command.push_back("--no-shm");
    servers_.push_back(Spawn(command, folder_.path() + "/output"));
  }
  return {};
}

Status Fleet::CheckAlive() {
  std::string how;
  const auto fail = [&](const char* program) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}/{}: {}\n{}", options_.programs, program, how, ReadText(folder_.path() + "/output")));
  };
  if (scheduler_.Ended(&how)) return fail("tarn-scheduler");
  for (Child& server : servers_)
    if (server.Ended(&how)) return fail("tarn-server");
  return {};
}

Expected<Client> Fleet::Connect() {
  auto client = Client::Connect({.scheduler = scheduler_endpoint_,
                                 .timeout_seconds = kStartSeconds,
                                 .insecure = true,
                                 .shm = options_.transport == "shm",
                                 .io_threads = net::IoThreadsFor(options_.lanes)});
  // The process that ended gives the best reason for the failure.
  if (!client) TARN_RETURN_IF_ERROR(CheckAlive());
  return client;
}

double Fleet::ServerCpuSeconds() const {
  double seconds = 0;
  for (const Child& server : servers_) seconds += server.CpuSeconds();
  return seconds;
}

}  // namespace tarn::bench
