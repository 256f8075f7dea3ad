#include "sim/fleet/run_seed.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>

#include "sim/fleet/fleet.h"

namespace tarn::sim {
namespace {

// The same job with other numbers of servers and of shards per server, without faults and without limits on memory.
Scenario Twin(const Scenario& scenario) {
  Scenario twin = scenario;
  twin.faults = {};
  twin.faults.until_us = 1'000;
  twin.parked_pulls_max = twin.bucket_bytes_max = 0;
  twin.tier_bytes = twin.waiting_messages_max = twin.waiting_bytes_max = 0;
  twin.job.fleet.servers = scenario.job.fleet.servers % 3 + 1;
  twin.job.fleet.shards = 3 - scenario.job.fleet.shards;
  twin.shards = twin.job.fleet.servers * twin.job.fleet.shards;
  if (twin.shards == scenario.shards) twin.shards = ++twin.job.fleet.servers;  // 1 x 2: compared with 3 x 1
  return twin;
}

// The scenario without worker caches.
Scenario WithoutCache(Scenario scenario) {
  scenario.counts_cache = {};
  for (auto& [name, own] : scenario.job.tables) own.worker_cache = {};
  return scenario;
}

// Like Twin, but with splits of another size, and with faults in every other seed; none of them ends the job.
Scenario Resumed(const Scenario& scenario) {
  Scenario resumed = Twin(scenario);
  resumed.draw = Mix64(scenario.draw ^ 0x726573);
  resumed.tier_bytes = scenario.tier_bytes;
  if (!scenario.HasFixedBits()) resumed.job.data.split_rows = scenario.job.train.batch_rows * (1 + resumed.draw % 8);
  if (scenario.seed % 2 == 0) return resumed;
  resumed.faults = scenario.faults;
  resumed.faults.stop_us = 0;
  resumed.faults.fail_store = resumed.faults.fail_manifest = 0;
  resumed.faults.shard_sleeps = resumed.faults.fail_tier = resumed.faults.damage_tier = false;
  resumed.faults.failed_syncs = resumed.faults.server_deaths = 0;
  resumed.faults.scheduler_dies = false;
  return resumed;
}

// A random checkpoint, or the newest.
std::optional<ResumePoint> Choose(const SimDisk& disk, std::uint64_t draw, bool newest) {
  if (disk.manifests.empty()) return std::nullopt;
  if (newest) {
    const auto last = std::ranges::max_element(disk.manifests, {}, [](const auto& m) { return m.second.id; });
    return ResumePoint{last->second, last->first};
  }
  const auto it = std::next(disk.manifests.begin(), std::ptrdiff_t(SplitMix(draw).Below(disk.manifests.size())));
  return ResumePoint{it->second, it->first};
}

void Resume(const Scenario& first, SimDisk* disk, std::optional<std::uint64_t> bits, bool verbose, RunResult* result) {
  const auto point = Choose(*disk, first.draw, result->stopped);
  if (!point) return;
  const RunResult second = Fleet(Resumed(first), disk, &*point, verbose).Run();
  result->resumed = true;
  if (result->drained && point->manifest.batches_behind != 0)
    result->failure = "the checkpoint of a stop counts batches that are trained again";
  result->outages += second.outages;
  result->power_cuts += second.power_cuts;
  result->deaths += second.deaths;
  result->recoveries += second.recoveries;
  result->time_jumps += second.time_jumps;
  result->stalls += second.stalls;
  result->acked_push_ids += second.acked_push_ids;
  result->faults_fired += second.faults_fired;
  result->messages += second.messages;
  result->state_hash = HashCombine(result->state_hash, second.state_hash);
  if (!second.failure.empty()) result->failure = "resumed from " + point->directory + ": " + second.failure;
  if (bits && second.bits_fixed && second.failure.empty() && second.parameters_hash != *bits)
    result->failure = "resumed from " + point->directory + ": bits differ from those of a run that was never stopped";
}

}  // namespace

RunResult RunSeed(std::uint64_t seed, bool verbose) {
  const Scenario scenario = MakeScenario(seed);
  if (verbose) std::fprintf(stderr, "seed %lu: %s\n", static_cast<unsigned long>(seed), scenario.Describe().c_str());
  SimDisk disk;
  Fleet fleet(scenario, &disk, nullptr, verbose);
  RunResult result = fleet.Run();
  for (const auto& [directory, manifest] : disk.manifests) fleet.CheckCheckpoint({manifest, directory});
  result.failure = fleet.failure();
  if (!result.failure.empty()) return result;
  const bool goes_on = scenario.resume || result.job_failed || result.stopped;
  std::optional<std::uint64_t> bits;
  if (scenario.HasFixedBits() && result.bits_fixed && (!result.job_failed || !disk.manifests.empty())) {
    SimDisk another;
    const RunResult twin = Fleet(WithoutCache(Twin(scenario)), &another, nullptr, false).Run();
    bits = twin.parameters_hash;
    if (!twin.failure.empty())
      result.failure = "without faults: " + twin.failure;
    else if (!result.job_failed && !result.stopped && twin.parameters_hash != result.parameters_hash)
      result.failure =
          "bsp + aggregated: faults or other numbers of servers and shards changed the bits of the parameters";
  }
  if (goes_on && result.failure.empty()) Resume(scenario, &disk, bits, verbose, &result);
  return result;
}

}  // namespace tarn::sim
