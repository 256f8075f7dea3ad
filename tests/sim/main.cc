// tarn-sim: runs simulated fleets, one per seed, and checks what must hold. See sim/README.md.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/fleet/run_seed.h"
#include "sim/scenario.h"

namespace {

using tarn::sim::RunResult;

struct Options {
  std::uint64_t first = 1, seeds = 1000, seed = 0;
  unsigned threads = 2;
  std::uint64_t repeat_every = 50;
  bool verbose = false, keep_going = false;
};

struct Totals {
  std::uint64_t runs = 0, busy = 0, resumed = 0, failed = 0, acked = 0, faults = 0, messages = 0, crashes = 0,
                fenced = 0, outages = 0, power_cuts = 0, recoveries = 0, time_jumps = 0, deaths = 0, rows_from_disk = 0,
                waited_for_rows = 0, requests_saved = 0, stalls = 0;
};

void PrintFailure(const RunResult& r) {
  fmt::print("FAILED seed {}: {}\n  scenario: {}\n  replay: tarn-sim --seed {} --verbose\n", r.seed, r.failure,
             tarn::sim::MakeScenario(r.seed).Describe(), r.seed);
  std::fflush(stdout);
}

int RunOne(const Options& options) {
  const RunResult a = tarn::sim::RunSeed(options.seed, options.verbose);
  fmt::print(
      "seed {} state hash {:016x}: {} push ids acknowledged, {} faults, {} crashes, {} messages, {:.1f} s simulated\n",
      a.seed, a.state_hash, a.acked_push_ids, a.faults_fired, a.crashes, a.messages, double(a.simulated_us) * 1e-6);
  if (!a.failure.empty()) PrintFailure(a);
  return a.failure.empty() ? 0 : 1;
}

int RunMany(const Options& options) {
  std::atomic<std::uint64_t> next{options.first};
  std::atomic<bool> stop{false};
  const std::uint64_t end = options.first + options.seeds;
  std::mutex mutex;
  Totals totals;
  const auto start = std::chrono::steady_clock::now();
  const auto work = [&] {
    for (std::uint64_t seed; !stop && (seed = next.fetch_add(1)) < end;) {
      RunResult r = tarn::sim::RunSeed(seed, false);
      if (r.failure.empty() && options.repeat_every != 0 && seed % options.repeat_every == 0 &&
          tarn::sim::RunSeed(seed, false).state_hash != r.state_hash)
        r.failure = "the same seed gave another state hash";
      const std::lock_guard lock(mutex);
      ++totals.runs;
      totals.busy += r.busy();
      totals.resumed += r.resumed;
      totals.acked += r.acked_push_ids;
      totals.faults += r.faults_fired;
      totals.messages += r.messages;
      totals.crashes += r.crashes;
      totals.fenced += r.fenced;
      totals.outages += r.outages;
      totals.power_cuts += r.power_cuts;
      totals.recoveries += r.recoveries;
      totals.time_jumps += r.time_jumps;
      totals.deaths += r.deaths;
      totals.rows_from_disk += r.rows_from_disk;
      totals.waited_for_rows += r.waited_for_rows;
      totals.requests_saved += r.requests_saved;
      totals.stalls += r.stalls;
      if (!r.failure.empty()) {
        ++totals.failed;
        PrintFailure(r);
        if (!options.keep_going) stop = true;
      }
      if (totals.runs % 1000 == 0) {
        fmt::print("{} runs, {} busy, {} failed\n", totals.runs, totals.busy, totals.failed);
        std::fflush(stdout);
      }
    }
  };
  std::vector<std::jthread> threads;
  threads.reserve(options.threads);
  for (unsigned i = 0; i < options.threads; ++i) threads.emplace_back(work);
  threads.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print(
      "seeds {}..{}: {} runs in {:.1f} s ({:.0f}/s), {} busy, {} resumed, {} failed; {} push ids acknowledged, {} "
      "faults, {} "
      "worker "
      "crashes, {} fenced, {} outages ({} of the power), {} shards compared after one, {} jumps in time, {} "
      "deaths of one and failed syncs, {} messages, "
      "{} rows from disk, {} messages waited for them, {} cached rows and combined pushes, {} stalls of the "
      "scheduler's disk\n",
      options.first, options.first + totals.runs - 1, totals.runs, seconds, double(totals.runs) / seconds, totals.busy,
      totals.resumed, totals.failed, totals.acked, totals.faults, totals.crashes, totals.fenced, totals.outages,
      totals.power_cuts, totals.recoveries, totals.time_jumps, totals.deaths, totals.messages, totals.rows_from_disk,
      totals.waited_for_rows, totals.requests_saved, totals.stalls);
  // A run that was not busy (RunResult::busy) shows little. About one in six is not; many more mean that the scenarios
  // have become too easy.
  if (totals.busy * 5 < totals.runs * 4) {
    fmt::print("too few busy runs: {} of {}\n", totals.busy, totals.runs);
    return 1;
  }
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Simulates whole fleets with faults, one per seed, and checks that nothing acknowledged is lost, nothing\n"
      "is applied twice, the staleness bound holds and everything finishes once faults stop."};
  app.add_option("--first", options.first, "first seed")->capture_default_str();
  app.add_option("--seeds", options.seeds, "how many seeds")->capture_default_str();
  app.add_option("--seed", options.seed, "replay this one seed");
  app.add_option("--threads", options.threads, "threads")->capture_default_str();
  app.add_option("--repeat-every", options.repeat_every, "run every n-th seed twice and compare hashes; 0: never")
      ->capture_default_str();
  app.add_flag("--verbose", options.verbose, "with --seed: print every message");
  app.add_flag("--keep-going", options.keep_going, "do not stop at the first failing seed");
  CLI11_PARSE(app, argc, argv);
  return options.seed != 0 ? RunOne(options) : RunMany(options);
}
