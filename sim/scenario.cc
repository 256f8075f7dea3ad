#include "sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/hash.h"
#include "core/limits.h"

namespace tarn::sim {
namespace {

void ChooseConsistency(SplitMix& rng, ConsistencySpec* out) {
  switch (rng.Below(5)) {
    case 0:
    case 1: *out = {ConsistencyMode::kBsp, 0, ApplyMode::kAggregated}; break;
    case 2: *out = {ConsistencyMode::kBsp, 0, ApplyMode::kImmediate}; break;
    case 3:
      *out = {ConsistencyMode::kSsp, std::uint32_t(1 + rng.Below(4)),
              rng.Chance(0.5) ? ApplyMode::kAggregated : ApplyMode::kImmediate};
      break;
    default: *out = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate}; break;
  }
}

void ChooseFaults(SplitMix& rng, std::uint32_t workers, Faults* f) {
  // Each kind is off in a good share of the runs, so that no kind always hides behind another.
  f->drop = rng.Chance(0.5) ? rng.Unit() * 0.15 : 0;
  f->duplicate = rng.Chance(0.5) ? rng.Unit() * 0.3 : 0;
  f->reorder = rng.Chance(0.5) ? rng.Unit() * 0.2 : 0;
  f->spike = rng.Chance(0.4) ? rng.Unit() * 0.02 : 0;
  f->spike_us = 1'500'000;
  f->delay_max_us = 200 + TimeUs(rng.Below(10'000));
  f->reconnects = rng.Chance(0.5) ? std::uint32_t(rng.Below(12)) : 0;
  f->partitions = rng.Chance(0.5) ? std::uint32_t(rng.Below(5)) : 0;
  f->pauses = rng.Chance(0.5) ? std::uint32_t(rng.Below(5)) : 0;
  f->crashes = rng.Chance(0.6) ? std::uint32_t(1 + rng.Below(2 * workers)) : 0;
  f->until_us = 1'000'000 + TimeUs(rng.Below(8'000'000));
  f->doubles = rng.Chance(0.2) ? 1 : 0;
  f->cut_at_change = rng.Chance(0.5) ? 0.05 + 0.3 * rng.Unit() : 0;
  f->crash_at_cut = rng.Chance(0.3) ? 0.4 * rng.Unit() : 0;
  f->slow_store = rng.Chance(0.4) ? rng.Unit() : 0;
  f->fail_store = rng.Chance(0.08) ? 0.3 * rng.Unit() : 0;
  f->fail_manifest = rng.Chance(0.08) ? rng.Unit() : 0;
  f->scheduler_sleeps = rng.Chance(0.15);
  f->shard_sleeps = rng.Chance(0.05);
}

// What [tables.NAME] of the job says: a mode of its own in some runs, and codecs.
void ChooseTable(SplitMix& rng, const std::string& name, bool mixed, Job* job, ConsistencySpec* spec) {
  TableOverride own;
  *spec = job->consistency;
  if (mixed) {
    // Often a pair that has workers run ahead of a cut: one table applied at once, one aggregated, neither bsp.
    const std::uint32_t ahead = std::uint32_t(1 + rng.Below(4));
    if (rng.Chance(0.5))
      ChooseConsistency(rng, spec);
    else
      *spec = {ConsistencyMode::kSsp, ahead, name == "layer" ? ApplyMode::kAggregated : ApplyMode::kImmediate};
    own.has_consistency = true;
    own.consistency = *spec;
  }
  constexpr ValueCodec kCodecs[] = {ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16};
  if (rng.Chance(0.3)) {
    own.has_pull_codec = own.has_push_codec = true;
    own.pull_codec = kCodecs[rng.Below(3)];
    own.push_codec = kCodecs[rng.Below(3)];
  }
  if (own != TableOverride()) job->tables[name] = own;
}

// Everything aggregated, and workers apart: pushes are gathered for clocks beyond a cut, and clocks close together.
// Drawn apart, too.
void ChooseAhead(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6168656164));
  if (!rng.Chance(s->job.storage.durability == Durability::kLog ? 0.25 : 0.1)) return;
  s->job.consistency = {ConsistencyMode::kSsp, std::uint32_t(1 + rng.Below(4)), ApplyMode::kAggregated};
  s->counts = s->layer = s->job.consistency;
  for (auto& [name, own] : s->job.tables) own.has_consistency = false;
  if (rng.Chance(0.5)) s->faults.drop = 0.15;
}

// Workers in step of which one is often behind for longer than the others take to tell what they have done.
void ChooseBehind(SplitMix& rng, Scenario* s) {
  s->workers = s->job.fleet.workers = std::max(2u, s->workers);
  s->compute_max_us = 50'000 + TimeUs(rng.Below(100'000));
  s->faults.sync_max_us = 2'000;
  s->tells_at_once = true;
  s->faults.outages += 2;
  s->faults.outage_awaits = 0.8;
}

// Drawn apart, so that the rest of a seed means what it meant before there were logs.
void ChooseLog(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6c6f67));
  if (!rng.Chance(0.4)) return;
  s->job.storage.durability = Durability::kLog;
  // Often, so that many outages are behind a checkpoint that is whole.
  if (rng.Chance(0.75)) s->job.storage.checkpoint_clocks = 3 + rng.Below(8);
  s->faults.outages = std::uint32_t(rng.Below(6));
  // Often both kinds in one run: what a kill leaves unsynced, and is read, may go with the power later.
  s->faults.power = rng.Chance(0.6) ? 0.5 : rng.Chance(0.5) ? 1.0 : 0.0;
  s->faults.outage_awaits = rng.Chance(0.8) ? 0.8 : 0;
  s->faults.outage_again = rng.Chance(0.5) ? 0.4 : 0;
  s->faults.sync_max_us = rng.Chance(0.3) ? 300'000 : 5'000;
  // Cuts that are whole soon, or most outages would find none.
  if (rng.Chance(0.75)) {
    s->cut_slice_bytes = 100 + rng.Below(4'000);
    s->cut_pause_us = TimeUs(rng.Below(2'000));
    s->faults.slow_store = s->faults.full_store = 0;
  }
  if (s->KeepsStep() && rng.Chance(0.4)) ChooseBehind(rng, s);
  s->tells_at_once |= rng.Chance(0.3);
  s->faults.slow_syncs = SplitMix(Mix64(seed ^ 0x73796e63)).Chance(0.2) ? 2 : 0;
  // Fixed bits are worth most where nothing else disturbs them.
  if (!rng.Chance(0.5)) return;
  s->faults.crashes = s->faults.doubles = 0;
  s->faults.crash_at_cut = 0;
  s->faults.partitions = s->faults.pauses = 0;
  s->faults.scheduler_sleeps = s->faults.shard_sleeps = false;
}

// What ends alone, and clocks that drift. Drawn apart, likewise.
void ChooseDeaths(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x64656174));
  if (rng.Chance(0.5)) s->faults.clock_drift = rng.Chance(0.8) ? 0.02 : 0.08;
  if (rng.Chance(0.06)) s->faults.server_deaths = 1 + std::uint32_t(rng.Below(2));
  s->faults.scheduler_dies = rng.Chance(0.04);
  if (s->job.storage.durability == Durability::kLog && rng.Chance(0.3))
    s->faults.failed_syncs = 1 + std::uint32_t(rng.Below(3));
}

// By a draw of its own: seeds without a tier stay what they were.
void ChooseTier(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x74696572));
  if (!rng.Chance(0.4)) return;
  // From nothing but what a message needs to nearly all rows.
  s->tier_bytes = 1 + rng.Below(rng.Chance(0.7) ? 20'000 : 60'000);
  if (rng.Chance(0.2)) s->waiting_messages_max = 1 + rng.Below(4);
  if (rng.Chance(0.1)) s->waiting_bytes_max = 500 + rng.Below(5'000);
  s->faults.slow_tier = rng.Chance(0.4) ? 0.1 * rng.Unit() : 0;
  s->faults.fail_tier = rng.Chance(0.05);
  s->faults.damage_tier = rng.Chance(0.05);
}

// Workers that run ahead of a checkpoint at a clock, of which a shard hears late. Drawn apart, too.
void ChooseRace(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x72616365));
  if (!rng.Chance(0.1)) return;
  const std::uint32_t ahead = std::uint32_t(2 + rng.Below(3));
  s->job.consistency = s->layer = {ConsistencyMode::kSsp, ahead, ApplyMode::kAggregated};
  s->counts = {ConsistencyMode::kSsp, ahead, ApplyMode::kImmediate};
  for (auto& [name, own] : s->job.tables) own.has_consistency = false;
  s->job.tables["counts"].has_consistency = true;
  s->job.tables["counts"].consistency = s->counts;
  if (s->job.storage.durability == Durability::kNone) s->job.storage.durability = Durability::kCheckpoint;
  s->job.storage.checkpoint_clocks = 2 + rng.Below(6);
  s->requests += 4;
  s->compute_max_us = 300 + TimeUs(rng.Below(3'000));
  s->cut_slice_bytes = 4'000;
  s->cut_pause_us = 0;
  s->faults.cut_at_change = 0.2 + 0.4 * rng.Unit();
  s->faults.slow_store = s->faults.full_store = 0;
}

// Clocks that jump over boundaries, lifetimes and all of a run.
void ChooseSeconds(SplitMix& rng, LifeSpec* life, Faults* faults) {
  constexpr double kLifetimes[] = {1, 3, 20, 600, 7200};
  life->expire_clocks = 0;
  life->score_decay = 1;
  life->min_score = 0;
  life->expire_seconds = kLifetimes[rng.Below(std::size(kLifetimes))];
  faults->time_jumps = rng.Chance(0.7) ? std::uint32_t(rng.Below(12)) : 0;
  faults->jump_at_cut = rng.Chance(0.5) ? rng.Unit() : 0;
}

// Rows of the oracle table that come and go, or are kept in 16 bits. Drawn apart, too.
void ChooseLife(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6c696665));
  if (!rng.Chance(0.4)) return;
  TableOverride& own = s->job.tables["counts"];
  if (rng.Chance(0.3)) {
    own.has_row_codec = true;
    own.row_codec = rng.Chance(0.5) ? ValueCodec::kBf16 : ValueCodec::kFp16;
    s->counts_row_codec = own.row_codec;
  }
  own.has_life = true;
  LifeSpec& life = own.life;
  life.on = true;
  life.sweep_clocks = 1 + rng.Below(20);
  if (rng.Chance(0.4)) life.admit_count = std::uint32_t(2 + rng.Below(3));
  if (rng.Chance(0.3)) life.admit_probability = 0.3f;
  switch (rng.Below(4)) {
    case 0: life.expire_clocks = 1 + rng.Below(40); break;
    case 1: life.score_decay = 0.9f; break;
    case 2: life.expire_seconds = 3; break;
    default: break;
  }
  if (life.score_decay != 1) life.min_score = rng.Chance(0.7) ? 0.3f : 0;
  if (rng.Chance(0.4)) life.rows_max = 10 + rng.Below(100);
  // Short lives whose ends the clocks of aggregated pushes decide alone.
  if (s->counts.mode == ConsistencyMode::kSsp && s->counts.apply == ApplyMode::kAggregated && rng.Chance(0.6)) {
    life = {.on = true, .expire_clocks = 2 + rng.Below(8), .sweep_clocks = 1 + rng.Below(3)};
    s->counts_row_codec = ValueCodec::kFp32;
    own.has_row_codec = false;
  }
  if (life.expire_seconds != 0 || rng.Chance(0.15)) ChooseSeconds(rng, &life, &s->faults);
  s->life = life;
}

// Rows of bytes, one way or both. Drawn apart, too.
void ChooseInt8(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x696e7438));
  for (const char* name : {"counts", "layer"}) {
    if (!rng.Chance(0.2)) continue;
    TableOverride& own = s->job.tables[name];
    if (rng.Chance(0.7)) own.has_pull_codec = true, own.pull_codec = ValueCodec::kInt8;
    if (rng.Chance(0.7)) own.has_push_codec = true, own.push_codec = ValueCodec::kInt8;
  }
}

// Pushes of the largest alone, with all sizes of what may be kept. Drawn apart, too.
void ChooseTopK(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x746f706b));
  if (!rng.Chance(0.35)) return;
  constexpr float kShares[] = {0.02f, 0.1f, 0.3f, 0.7f, 1.0f};
  for (const char* name : {"counts", "layer"}) {
    if (!rng.Chance(0.7)) continue;
    TableOverride& own = s->job.tables[name];
    own.has_push_codec = own.has_top_k = true;
    own.push_codec = ValueCodec::kTopK;
    own.top_k.share = kShares[rng.Below(std::size(kShares))];
    own.top_k.residual_bytes = limits::kResidualBytesMin + (rng.Chance(0.5) ? rng.Below(8'000) : 60'000);
    own.worker_cache.push_every = 1;
    s->top_k = true;
  }
  if (s->job.tables.contains("counts")) s->counts_cache = s->job.tables["counts"].worker_cache;
  // Checkpoints are what their state is for.
  if (!s->top_k || !rng.Chance(0.7)) return;
  if (s->job.storage.durability == Durability::kNone) s->job.storage.durability = Durability::kCheckpoint;
  s->job.storage.checkpoint_clocks = 3 + rng.Below(10);
  s->resume |= rng.Chance(0.5);
}

// Lists of keys that shards hold: often few, so that they are missed, at times none. Drawn apart, too.
void ChooseLists(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6c697374));
  s->job.train.key_caching = rng.Chance(0.8);
  s->held_keys_bytes = 100 + rng.Below(3'000);
  s->held_lists_bytes_max = rng.Chance(0.5) ? 200 + rng.Below(3'000) : 1 << 20;
}

// Pulls that take other connections than pushes, and overtake them. Drawn apart, too.
void ChooseLanes(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6c616e65));
  if (rng.Chance(0.4)) s->job.fleet.lanes = std::uint32_t(2 + rng.Below(3));
}

// Restarts of workers in step: all are taken back to one clock, and begin together. Drawn apart, too.
void ChooseRestart(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x72657374));
  if (s->job.storage.durability != Durability::kLog || !s->KeepsStep() || s->workers == 1 || !rng.Chance(0.6)) return;
  s->faults.outages_at_jumps = std::uint32_t(rng.Below(3));
  s->faults.slow_recovery = rng.Chance(0.5) ? 0.5 : 0;
  s->faults.outages += 1;
}

// The scheduler's own disk. Drawn apart, too.
void ChooseSchedulerDisk(std::uint64_t seed, Faults* f) {
  SplitMix rng(Mix64(seed ^ 0x7374617465));
  f->fail_state = rng.Chance(0.3) ? 0.2 * rng.Unit() : 0;
  f->stall_state = rng.Chance(0.3) ? 0.05 * rng.Unit() : 0;
}

bool IsExact(const ConsistencySpec& spec) {
  return spec.mode == ConsistencyMode::kBsp && spec.apply == ApplyMode::kAggregated;
}

// How many clocks a worker's pushes may wait in it for the table's sake.
std::uint64_t MayWait(const ConsistencySpec& spec) {
  constexpr std::uint64_t kLong = 6;
  if (spec.mode == ConsistencyMode::kAsp) return kLong;
  return spec.mode == ConsistencyMode::kSsp ? spec.staleness : 0;
}

WorkerCacheSpec DrawCache(SplitMix& rng, const ConsistencySpec& spec, std::uint64_t may_wait) {
  WorkerCacheSpec cache;
  // From a few rows to all of them.
  if (spec.mode != ConsistencyMode::kAsp && rng.Chance(0.8))
    cache.bytes = 1'024 + rng.Below(rng.Chance(0.5) ? 1 : 9'000);
  cache.own_pushes = rng.Chance(0.5) ? OwnPushes::kSeen : OwnPushes::kBounded;
  const bool combines = spec.apply == ApplyMode::kImmediate && may_wait > 0 && rng.Chance(0.6);
  if (!combines) return cache;
  cache.own_pushes = OwnPushes::kBounded;
  cache.push_every = std::uint32_t(2 + rng.Below(may_wait));
  return cache;
}

// Workers that keep rows, and pushes that wait for later ones. Drawn apart, too.
void ChooseCache(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6361636865));
  if (!rng.Chance(0.5)) return;
  if (!s->KeepsStep() && rng.Chance(0.4)) {
    const std::uint32_t bound = std::uint32_t(1 + rng.Below(5));
    s->job.consistency = {ConsistencyMode::kSsp, bound,
                          rng.Chance(0.8) ? ApplyMode::kImmediate : ApplyMode::kAggregated};
    s->counts = s->layer = s->job.consistency;
    for (auto& [name, own] : s->job.tables) own.has_consistency = false;
  }
  const std::uint64_t may_wait = std::min({MayWait(s->job.consistency), MayWait(s->counts), MayWait(s->layer)});
  for (const char* name : {"counts", "layer"}) {
    TableOverride& own = s->job.tables[name];
    own.worker_cache = DrawCache(rng, s->Of(name), may_wait);
    own.has_worker_cache = true;
  }
  s->counts_cache = s->job.tables["counts"].worker_cache;
  s->reads_again = rng.Chance(0.5);
}

// Epochs of so few splits that a worker may have none, and goes from one evaluation to the next within the bound.
// Drawn apart, too.
void ChooseShortEpochs(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x73686f7274));
  const bool keeps_rows = s->counts.mode == ConsistencyMode::kSsp && s->counts_cache.bytes != 0;
  if (!keeps_rows || s->workers == 1 || !rng.Chance(0.3)) return;
  Job& job = s->job;
  job.train.epochs = std::uint32_t(30 + rng.Below(20));
  job.data.split_rows = job.train.batch_rows * (1 + rng.Below(2));
  s->train_rows = job.data.split_rows * (1 + rng.Below(s->workers));
  s->valid_rows = 10 + rng.Below(30);
  job.data.valid = "valid";
}

// Somebody stops the run cleanly, which then goes on from the checkpoint of the stop. Drawn apart, too.
void ChooseStop(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x73746f70));
  if (s->job.storage.durability == Durability::kNone || !rng.Chance(0.25)) return;
  // Mostly while batches are under way, and in modes in which workers are apart.
  s->faults.stop_us = 300'000 + TimeUs(rng.Below(3'000'000));
  if (s->KeepsStep() || !rng.Chance(0.7)) return;
  s->job.consistency = {rng.Chance(0.5) ? ConsistencyMode::kAsp : ConsistencyMode::kSsp, 0, ApplyMode::kImmediate};
  if (s->job.consistency.mode == ConsistencyMode::kSsp) s->job.consistency.staleness = std::uint32_t(1 + rng.Below(4));
  s->counts = s->layer = s->job.consistency;
  s->counts_cache = {};
  for (auto& [name, own] : s->job.tables) own.has_consistency = own.has_worker_cache = false;
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
  // Enough batches that every run acknowledges well over a thousand push ids.
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
  s.push_pull = rng.Chance(0.25);
  s.through_frames = rng.Chance(0.1);
  s.any_rank = rng.Chance(0.2);
  s.resume = rng.Chance(0.4);
  if (rng.Chance(0.2)) s.parked_pulls_max = 1 + rng.Below(6);
  // Room for a clock of all workers, or nothing would ever close.
  if (rng.Chance(0.2)) s.bucket_bytes_max = (20'000 + rng.Below(20'000)) * s.workers;
  ChooseFaults(rng, s.workers, &s.faults);
  s.cut_slice_bytes = 1 + rng.Below(300);
  s.cut_pause_us = rng.Chance(0.8) ? TimeUs(rng.Below(20'000)) : 0;
  s.faults.full_store = rng.Chance(0.5) ? 0.5 * rng.Unit() : 0;
  // Cuts that last long enough to be overtaken by the end of their order.
  if (rng.Chance(0.25)) {
    s.cut_pause_us *= 25;
    if (rng.Chance(0.3)) s.faults.fail_store = 0.5 * rng.Unit();
  }
  job.storage.checkpoint_chain = std::uint32_t(rng.Below(8));
  if (rng.Chance(0.3)) s.requests = 1 + std::uint32_t(rng.Below(6));
  if (rng.Chance(0.3) && job.storage.checkpoint_clocks != 0) job.storage.checkpoint_clocks = 2 + rng.Below(6);
  s.faults.lose_base = rng.Chance(0.15) ? 0.3 * rng.Unit() : 0;
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
  ChooseTopK(seed, &s);
  ChooseStop(seed, &s);
  ChooseDeaths(seed, &s);
  if (auto it = job.tables.find("counts"); it != job.tables.end() && it->second.has_pull_codec)
    s.counts_pull_codec = it->second.pull_codec;
  return s;
}

bool Scenario::CutsAtClock() const {
  auto keeps_step = [](const ConsistencySpec& spec) {
    return spec.mode == ConsistencyMode::kBsp || spec.apply == ApplyMode::kAggregated;
  };
  return keeps_step(job.consistency) || keeps_step(counts) || keeps_step(layer);
}

bool Scenario::KeepsStep() const {
  return IsExact(job.consistency) && IsExact(counts) && IsExact(layer) && life.expire_seconds == 0;
}

std::string Scenario::Describe() const {
  return fmt::format(
      "{} shards, {} workers, {}{} {}, counts {}{} {}, layer {}{} {}, cache {} {} {}, {} rows x {} epochs, depth {}, "
      "life {} {}/{:.1f} "
      "{}/{:.0f}/{:.1f} {} {} rows of {}; drop {:.2f} dup "
      "{:.2f} reorder {:.2f} "
      "spike {:.3f} reconnects {} partitions {} pauses {} crashes {} doubles {} cuts {:.2f} store "
      "{:.2f}/{:.2f}/{:.2f}/{:.2f}/{:.2f} chain {} requests {} "
      "sleeps {}/{} {} outages {}+{}/{:.1f} power {} awaits {} again {} sync {}/{} tier {} {:.2f}/{}/{} time jumps "
      "{}/{:.2f} top-k {} lanes {} stop {} drift {:.2f} deaths {}/{} failed syncs {} state {:.2f}/{:.2f}",

      shards, workers, Name(job.consistency.mode), job.consistency.staleness, Name(job.consistency.apply),
      Name(counts.mode), counts.staleness, Name(counts.apply), Name(layer.mode), layer.staleness, Name(layer.apply),
      counts_cache.bytes, Name(counts_cache.own_pushes), counts_cache.push_every, train_rows, job.train.epochs, depth,
      life.on, life.admit_count, life.admit_probability, life.expire_clocks, life.expire_seconds, life.min_score,
      life.rows_max, life.sweep_clocks, Name(counts_row_codec), faults.drop, faults.duplicate, faults.reorder,
      faults.spike, faults.reconnects, faults.partitions, faults.pauses, faults.crashes, faults.doubles,
      faults.cut_at_change, faults.slow_store, faults.fail_store, faults.fail_manifest, faults.full_store,
      faults.lose_base, job.storage.checkpoint_chain, requests, faults.scheduler_sleeps, faults.shard_sleeps,
      Name(job.storage.durability), faults.outages, faults.outages_at_jumps, faults.slow_recovery, faults.power,
      faults.outage_awaits, faults.outage_again, faults.sync_max_us, faults.slow_syncs, tier_bytes, faults.slow_tier,
      faults.fail_tier, faults.damage_tier, faults.time_jumps, faults.jump_at_cut, top_k, job.fleet.lanes,
      faults.stop_us, faults.clock_drift, faults.server_deaths, faults.scheduler_dies, faults.failed_syncs,
      faults.fail_state, faults.stall_state);
}

}  // namespace tarn::sim
