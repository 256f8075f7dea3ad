// tarn-checkpoint: requests a checkpoint of a running job and waits for it. See --help.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/job/job.h"
#include "core/listening.h"
#include "net/zmq/transport.h"
#include "scheduler/loop.h"

namespace {

using namespace tarn;
using Clock = std::chrono::steady_clock;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr std::int64_t kRepeatUs = 500'000;  // between two requests
constexpr double kShowAfterSeconds = 2;      // from then on, prints what it waits for

constexpr const char* kAbout =
    "Requests a checkpoint of the job that runs in RUN_DIR, waits until it is complete, and prints its directory.\n"
    "Training continues meanwhile. A request during a checkpoint is served by a later one.\n\n"
    "  tools/checkpoint runs/mine\n"
    "  tools/inspect show \"$(tools/checkpoint runs/mine)\"\n\n"
    "A fleet on one machine accepts only requests of its own user.\n"
    "Exit status: 0 complete, 1 no checkpoint (prints the reason), 2 bad usage.";

struct Flags {
  std::string run_dir, keys;
  double silence_seconds = 15;
  double timeout_seconds = 600;
  bool insecure = false;
};

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Expected<std::string> AddressOf(const std::string& run_dir) {
  auto text = ReadFile(scheduler::AddressFile(run_dir), 4096);
  if (!text && text.error().code == ErrorCode::kNotFound)
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}: no scheduler is running here ({} does not exist); tools/inspect list shows the "
                            "existing checkpoints",
                            run_dir, scheduler::AddressFile(run_dir)));
  if (!text) return std::unexpected(text.error());
  std::string address = text->substr(0, text->find('\n'));
  if (!address.empty()) return address;
  return Fail(ErrorCode::kCorrupt,
              fmt::format("{}: the first line is empty, expected the address of the scheduler that runs here",
                          scheduler::AddressFile(run_dir)));
}

// The key file: of --keys, else the one that tools/launch stores in the run directory during the run; empty: none.
std::string KeysOf(const Flags& flags) {
  const std::string launcher_keys = flags.run_dir + "/fleet.keys";
  std::error_code ignored;
  return flags.keys.empty() && std::filesystem::exists(launcher_keys, ignored) ? launcher_keys : flags.keys;
}

// Repeats the request until the scheduler reports a complete checkpoint. Returns its directory.
Expected<std::string> RequestCheckpoint(const Flags& flags, net::Transport* transport, std::uint64_t job) {
  std::random_device random;
  Message request;
  request.job = job;
  request.sender = {.role = Role::kScheduler, .rank = 0, .incarnation = {}};
  request.body = CheckpointRequest{(std::uint64_t{random()} << 32) | random(), ErrorCode::kOk, {}, {}};
  const std::uint64_t number = std::get<CheckpointRequest>(request.body).number;
  const auto start = Clock::now();
  auto last_answer = start;
  std::string last_shown, waits_text;  // last printed text; text about the nodes that the fleet waits for
  std::vector<net::Received> received;
  for (;;) {
    transport->Send(kSchedulerPeer, request);
    received.clear();
    transport->Receive(&received, 16, kRepeatUs);
    for (const net::Received& message : received) {
      last_answer = Clock::now();
      if (const auto* answer = std::get_if<CheckpointRequest>(&message.message.body)) {
        if (answer->number != number) continue;
        if (answer->code != ErrorCode::kOk) return Fail(answer->code, answer->message);
        if (!answer->directory.empty()) return answer->directory;
        waits_text = answer->message.empty() ? "" : "; the fleet is " + answer->message;
      } else if (const auto* shutdown = std::get_if<Shutdown>(&message.message.body)) {
        return Fail(ErrorCode::kCancelled, "the run has ended: " + shutdown->reason);
      }
    }
    if (SecondsSince(last_answer) > flags.silence_seconds)
      return Fail(ErrorCode::kUnavailable, fmt::format("no answer from the scheduler for {:.0f} s: is it running, {}?",
                                                       SecondsSince(last_answer), kSameKeys));
    if (SecondsSince(start) > flags.timeout_seconds)
      return Fail(ErrorCode::kTimeout,
                  fmt::format("no checkpoint within {:.0f} s{}; it may complete later (see tools/inspect list); "
                              "use --timeout-seconds to wait longer",
                              SecondsSince(start), waits_text));
    if (SecondsSince(start) < kShowAfterSeconds) continue;
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    // Prints a new line only if the awaited worker changes, because the seconds and clocks in the text always change.
    const std::string what = "waiting for the checkpoint" + waits_text.substr(0, waits_text.find(':'));
    if (terminal)
      fmt::print(stderr, "\r{:.0f} s: waiting for the checkpoint{}\033[K", SecondsSince(start), waits_text);
    else if (what != last_shown)
      fmt::print(stderr, "waiting for the checkpoint: {:.0f} s{}\n", SecondsSince(start), waits_text);
    last_shown = what;
  }
}

Status Run(const Flags& flags) {
  const auto address = AddressOf(flags.run_dir);
  if (!address) return std::unexpected(address.error());
  const auto job = LoadJob(flags.run_dir + "/job.toml");
  if (!job) return std::unexpected(job.error());
  net::ZmqContext context;
  TARN_RETURN_IF_ERROR(context.SecureFromFile(KeysOf(flags)));
  net::ZmqTransport transport(&context, {.insecure = flags.insecure, .shm = false});
  TARN_RETURN_IF_ERROR(transport.Connect(kSchedulerPeer, *address));
  const auto directory = RequestCheckpoint(flags, &transport, Fingerprint(*job));
  if (::isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
  if (!directory) return std::unexpected(directory.error());
  fmt::print("{}\n", *directory);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{kAbout};
  app.add_option("RUN_DIR", flags.run_dir, "folder of the run")->required();
  app.add_option("--keys", flags.keys,
                 "key file of the fleet, if it has one; the one made by tools/launch --hosts is found without "
                 "this option");
  app.add_option("--silence-seconds", flags.silence_seconds,
                 "fail after this time without an answer from the scheduler")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
  app.add_option("--timeout-seconds", flags.timeout_seconds,
                 "fail if there is no checkpoint after this time, although the scheduler answers")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
  app.add_flag("--insecure", flags.insecure, "connect to a fleet that was started with --insecure");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  if (const Status status = Run(flags); !status) {
    fmt::print(stderr, "tarn-checkpoint: {}\n", status.error().message);
    return kExitFailure;
  }
  return 0;
}
