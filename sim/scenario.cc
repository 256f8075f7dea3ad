#include "sim/scenario.h"

#include <fmt/format.h>

#include "core/hash.h"
#include "sim/fault_draws.h"
#include "sim/table_draws.h"

namespace tarn::sim {
namespace {

bool IsExact(const ConsistencySpec& spec) {
  return spec.mode == ConsistencyMode::kBsp && spec.apply == ApplyMode::kAggregated && spec.backup_workers == 0;
}

void ChooseBatchShares(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x736861726573));
  if (!rng.Chance(0.4) || !IsLockstep(s->job.consistency)) return;
  for (std::uint32_t rank = 0; rank < s->workers; ++rank)
    s->job.train.batch_shares.push_back(std::uint32_t(2 + rng.Below(3)));
}

}  // namespace

Scenario MakeScenario(std::uint64_t seed) {
  SplitMix rng(Mix64(seed ^ 0x7461726e));
  Scenario s;
  s.seed = s.draw = seed;
  s.workers = std::uint32_t(1 + rng.Below(4));
  Job& job = s.job;
  job.job.name = "sim";
  job.job.seed = seed;
  job.fleet.servers = std::uint32_t(1 + rng.Below(3));
  job.fleet.shards = std::uint32_t(1 + rng.Below(2));
  job.fleet.workers = s.workers;
  job.fleet.partition_bits = std::uint32_t(3 + rng.Below(2));
  job.fleet.lease_seconds = 4;
  job.fleet.heartbeat_seconds = 0.2;
  s.shards = job.fleet.servers * job.fleet.shards;
  ChooseConsistency(rng, &job.consistency);
  const bool mixed = rng.Chance(0.35);
  ChooseTable(rng, "counts", mixed && rng.Chance(0.7), &job, &s.counts);
  ChooseTable(rng, "layer", mixed && rng.Chance(0.7), &job, &s.layer);
  job.storage.durability = rng.Chance(mixed ? 0.9 : 0.5) ? Durability::kCheckpoint : Durability::kNone;
  job.storage.checkpoint_final = rng.Chance(0.5);
  if (job.storage.durability == Durability::kCheckpoint && rng.Chance(mixed ? 0.9 : 0.5))
    job.storage.checkpoint_clocks = 5 + rng.Below(30);
  job.train.batch_rows = std::uint32_t(2 + rng.Below(3));
  job.train.epochs = std::uint32_t(1 + rng.Below(2));
  // Enough batches for well over a thousand acknowledged push ids per run.
  const std::uint64_t batches = (150 + rng.Below(80)) / job.train.epochs;
  s.train_rows = batches * job.train.batch_rows + rng.Below(job.train.batch_rows);
  s.valid_rows = rng.Chance(0.5) ? 10 + rng.Below(30) : 0;
  s.test_rows = rng.Chance(0.3) ? 10 + rng.Below(30) : 0;
  job.data.train = "train";
  if (s.valid_rows > 0) job.data.valid = "valid";
  if (s.test_rows > 0) job.data.test = "test";
  job.data.split_rows = job.train.batch_rows * (1 + rng.Below(8));
  s.keys_per_row = std::uint32_t(3 + rng.Below(4));
  s.key_space = 20 + rng.Below(200);
  s.depth = std::uint32_t(1 + rng.Below(3));
  s.compute_max_us = 500 + TimeUs(rng.Below(40'000));
  s.pulls_early = rng.Chance(0.25);
  s.through_frames = rng.Chance(0.1);
  s.any_rank = rng.Chance(0.2);
  s.resume = rng.Chance(0.4);
  if (rng.Chance(0.2)) s.parked_pulls_max = 1 + rng.Below(6);
  // Room for one clock of all workers, otherwise no clock could close.
  if (rng.Chance(0.2)) s.bucket_bytes_max = (20'000 + rng.Below(20'000)) * s.workers;
  ChooseFaults(rng, s.workers, &s.faults);
  s.cut_slice_bytes = 1 + rng.Below(300);
  s.cut_pause_us = rng.Chance(0.8) ? TimeUs(rng.Below(20'000)) : 0;
  s.faults.full_store = rng.Chance(0.5) ? 0.5 * rng.Unit() : 0;
  // Slow cuts: a checkpoint order may end before its cut has ended.
  if (rng.Chance(0.25)) {
    s.cut_pause_us *= 25;
    if (rng.Chance(0.3)) s.faults.fail_store = 0.5 * rng.Unit();
  }
  job.storage.checkpoint_chain = std::uint32_t(rng.Below(8));
  if (rng.Chance(0.3)) s.requests = 1 + std::uint32_t(rng.Below(6));
  if (rng.Chance(0.3) && job.storage.checkpoint_clocks != 0) job.storage.checkpoint_clocks = 2 + rng.Below(6);
  s.faults.lose_base = rng.Chance(0.15) ? 0.3 * rng.Unit() : 0;
  s.serves_http = SplitMix(Mix64(seed ^ 0x68747470)).Chance(0.25);
  s.tables_together = SplitMix(Mix64(seed ^ 0x746f6765)).Chance(0.5);
  ChooseLog(seed, &s);
  ChooseAhead(seed, &s);
  ChooseRace(seed, &s);
  ChooseTier(seed, &s);
  ChooseLife(seed, &s);
  ChooseRestart(seed, &s);
  ChooseSchedulerDisk(seed, &s.faults);
  ChooseInt8(seed, &s);
  ChooseLists(seed, &s);
  ChooseLanes(seed, &s);
  ChooseCache(seed, &s);
  ChooseShortEpochs(seed, &s);
  ChooseLowBits(seed, &s);
  ChooseTopK(seed, &s);
  ChooseRules(seed, &s);
  ChooseStop(seed, &s);
  ChooseDeaths(seed, &s);
  ChooseLateTicks(seed, &s);
  ChooseProgramState(seed, &s);
  ChooseWaits(seed, &s);
  ChooseChanges(seed, &s);
  ChooseBackups(seed, &s);
  ChooseStalenessRange(seed, &s);
  ChooseBatchShares(seed, &s);
  if (auto it = job.tables.find("counts"); it != job.tables.end() && it->second.has_pull_codec)
    s.counts_pull_codec = it->second.pull_codec;
  return s;
}

bool Scenario::CutsAtClock() const {
  auto cuts_at_clock = [](const ConsistencySpec& spec) {
    return spec.mode == ConsistencyMode::kBsp || spec.apply == ApplyMode::kAggregated;
  };
  return cuts_at_clock(job.consistency) || cuts_at_clock(counts) || cuts_at_clock(layer);
}

bool Scenario::MayCutAtClock() const {
  const auto bounded = [](const ConsistencySpec& spec) { return spec.mode == ConsistencyMode::kSsp; };
  return CutsAtClock() || (program_state && (bounded(job.consistency) || bounded(counts) || bounded(layer)));
}

bool Scenario::HasFixedBits() const {
  return IsExact(job.consistency) && IsExact(counts) && IsExact(layer) && life.expire_seconds == 0;
}

std::string Scenario::Describe() const {
  return fmt::format(
      "{} shards, {} workers ({}), {}{} {} {} backups, counts {}{} {}, layer {}{} {}, cache {} {} {}, {} rows x {} "
      "epochs, "
      "depth {}, "
      "life {} {}/{:.1f} "
      "{}/{:.0f}/{:.1f} {} {} rows of {}; drop {:.2f} dup "
      "{:.2f} reorder {:.2f} "
      "spike {:.3f} reconnects {} partitions {} pauses {} crashes {} second starts {} isolated {:.2f} store "
      "{:.2f}/{:.2f}/{:.2f}/{:.2f}/{:.2f} chain {} requests {} "
      "sleeps {}/{} {} outages {}+{}/{:.1f} power loss {} awaits {} again {} sync {}/{} tier {} {:.2f}/{}/{} time "
      "jumps "
      "{}/{:.2f} top-k {} late ticks {} program state {}/{}/{:.2f} changes {}/{} lanes {} stop {} drift {:.2f} deaths "
      "{}/{} "
      "failed syncs {} range {} "
      "state "
      "{:.2f}/{:.2f}",

      shards, workers, fmt::join(job.train.batch_shares, " "), Name(job.consistency.mode), job.consistency.staleness,
      Name(job.consistency.apply), job.consistency.backup_workers, Name(counts.mode), counts.staleness,
      Name(counts.apply), Name(layer.mode), layer.staleness, Name(layer.apply), counts_cache.bytes,
      Name(counts_cache.own_pushes), counts_cache.push_every, train_rows, job.train.epochs, depth, life.on,
      life.admit_count, life.admit_probability, life.expire_clocks, life.expire_seconds, life.min_score, life.rows_max,
      life.sweep_clocks, Name(counts_row_codec), faults.drop, faults.duplicate, faults.reorder, faults.spike,
      faults.reconnects, faults.partitions, faults.pauses, faults.crashes, faults.second_starts,
      faults.isolate_at_new_view, faults.slow_store, faults.fail_store, faults.fail_manifest, faults.full_store,
      faults.lose_base, job.storage.checkpoint_chain, requests, faults.scheduler_sleeps, faults.shard_sleeps,
      Name(job.storage.durability), faults.outages, faults.outages_at_jumps, faults.slow_recovery, faults.power_loss,
      faults.outage_awaits, faults.outage_again, faults.sync_max_us, faults.slow_syncs, tier_bytes, faults.slow_tier,
      faults.fail_tier, faults.damage_tier, faults.time_jumps, faults.jump_at_cut, top_k, ticks_late, program_state,
      waits_for_pushes, slow_batches, changes, changes_step, job.fleet.lanes, faults.stop_us, faults.clock_drift,
      faults.server_deaths, faults.scheduler_dies, faults.failed_syncs, StalenessBound(counts) - counts.staleness,
      faults.fail_state, faults.stall_state);
}

}  // namespace tarn::sim
