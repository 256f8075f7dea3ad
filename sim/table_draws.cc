#include "sim/table_draws.h"

#include <algorithm>
#include <iterator>

#include "core/limits.h"

namespace tarn::sim {
namespace {

// Expiry in seconds, with jumps of the clock that skip boundaries, lifetimes or a whole run.
void ChooseSeconds(SplitMix& rng, LifeSpec* life, Faults* faults) {
  constexpr double kLifetimes[] = {1, 3, 20, 600, 7200};
  life->expire_clocks = 0;
  life->score_decay = 1;
  life->min_score = 0;
  life->expire_seconds = kLifetimes[rng.Below(std::size(kLifetimes))];
  faults->time_jumps = rng.Chance(0.7) ? std::uint32_t(rng.Below(12)) : 0;
  faults->jump_at_cut = rng.Chance(0.5) ? rng.Unit() : 0;
}

// Number of clocks for which the table's staleness bound allows a push to be held back.
std::uint64_t MayWait(const ConsistencySpec& spec) {
  constexpr std::uint64_t kLong = 6;
  if (spec.mode == ConsistencyMode::kAsp) return kLong;
  return spec.mode == ConsistencyMode::kSsp ? spec.staleness : 0;
}

WorkerCacheSpec DrawCache(SplitMix& rng, const ConsistencySpec& spec, std::uint64_t may_wait) {
  WorkerCacheSpec cache;
  // Room for a few rows, for all of them, or for a number between.
  if (spec.mode != ConsistencyMode::kAsp && rng.Chance(0.8))
    cache.bytes = 1'024 + rng.Below(rng.Chance(0.5) ? 1 : 9'000);
  cache.own_pushes = rng.Chance(0.5) ? OwnPushes::kSeen : OwnPushes::kBounded;
  const bool combines = spec.apply == ApplyMode::kImmediate && may_wait > 0 && rng.Chance(0.6);
  if (!combines) return cache;
  cache.own_pushes = OwnPushes::kBounded;
  cache.push_every = std::uint32_t(2 + rng.Below(may_wait));
  return cache;
}

}  // namespace

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

void ChooseTable(SplitMix& rng, const std::string& name, bool mixed, Job* job, ConsistencySpec* spec) {
  TableOverride own;
  *spec = job->consistency;
  if (mixed) {
    // Often a pair of tables with which workers run ahead of a cut: one immediate, one aggregated, neither bsp.
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

void ChooseAhead(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6168656164));
  if (!rng.Chance(s->job.storage.durability == Durability::kLog ? 0.25 : 0.1)) return;
  s->job.consistency = {ConsistencyMode::kSsp, std::uint32_t(1 + rng.Below(4)), ApplyMode::kAggregated};
  s->counts = s->layer = s->job.consistency;
  for (auto& [name, own] : s->job.tables) own.has_consistency = false;
  if (rng.Chance(0.5)) s->faults.drop = 0.15;
}

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
  s->faults.isolate_at_new_view = 0.2 + 0.4 * rng.Unit();
  s->faults.slow_store = s->faults.full_store = 0;
}

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
  // Short lives that depend only on the clocks of aggregated pushes.
  if (s->counts.mode == ConsistencyMode::kSsp && s->counts.apply == ApplyMode::kAggregated && rng.Chance(0.6)) {
    life = {.on = true, .expire_clocks = 2 + rng.Below(8), .sweep_clocks = 1 + rng.Below(3)};
    s->counts_row_codec = ValueCodec::kFp32;
    own.has_row_codec = false;
  }
  if (life.expire_seconds != 0 || rng.Chance(0.15)) ChooseSeconds(rng, &life, &s->faults);
  s->life = life;
}

void ChooseInt8(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x696e7438));
  for (const char* name : {"counts", "layer"}) {
    if (!rng.Chance(0.2)) continue;
    TableOverride& own = s->job.tables[name];
    if (rng.Chance(0.7)) own.has_pull_codec = true, own.pull_codec = ValueCodec::kInt8;
    if (rng.Chance(0.7)) own.has_push_codec = true, own.push_codec = ValueCodec::kInt8;
  }
}

// The oracle table has only codecs that encode its rows, two equal values each, exactly and without enlarging them.
void ChooseLowBits(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x62697473));
  constexpr ValueCodec kCodecs[] = {ValueCodec::kTernary, ValueCodec::kSign, ValueCodec::kOneBit, ValueCodec::kQsgd};
  for (const std::string name : {"counts", "layer"}) {
    if (!rng.Chance(0.15)) continue;
    TableOverride& own = s->job.tables[name];
    own.has_push_codec = true;
    own.push_codec = kCodecs[rng.Below(name == "counts" ? 2 : 4)];
    if (KeepsResiduals(own.push_codec)) own.worker_cache.push_every = 1;
  }
  if (rng.Chance(0.1)) {
    TableOverride& layer = s->job.tables["layer"];
    layer.has_push_codec = layer.has_compression = true;
    layer.push_codec = ValueCodec::kLowRank;
    layer.compression.rank = 1;
    layer.worker_cache.push_every = 1;
  }
  if (s->job.tables.contains("counts")) s->counts_cache = s->job.tables["counts"].worker_cache;
}

void ChooseTopK(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x746f706b));
  if (!rng.Chance(0.35)) return;
  SplitMix warmup(Mix64(seed ^ 0x7761726d));
  constexpr float kShares[] = {0.02f, 0.1f, 0.3f, 0.7f, 1.0f};
  for (const char* name : {"counts", "layer"}) {
    if (!rng.Chance(0.7)) continue;
    TableOverride& own = s->job.tables[name];
    own.has_push_codec = own.has_compression = true;
    own.push_codec = ValueCodec::kTopK;
    own.compression.share = kShares[rng.Below(std::size(kShares))];
    own.compression.residual_bytes = limits::kResidualBytesMin + (rng.Chance(0.5) ? rng.Below(8'000) : 60'000);
    if (warmup.Chance(0.4)) own.compression.warmup_clocks = 1 + warmup.Below(20);
    // The model of the oracle table has no momentum.
    if (name == std::string("layer") && warmup.Chance(0.5)) own.compression.momentum = 0.5f;
    own.worker_cache.push_every = 1;
    s->top_k = true;
  }
  if (s->job.tables.contains("counts")) s->counts_cache = s->job.tables["counts"].worker_cache;
  // Most such runs write checkpoints, which contain the residuals.
  if (!s->top_k || !rng.Chance(0.7)) return;
  if (s->job.storage.durability == Durability::kNone) s->job.storage.durability = Durability::kCheckpoint;
  s->job.storage.checkpoint_clocks = 3 + rng.Below(10);
  s->resume |= rng.Chance(0.5);
}

void ChooseRules(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x72756c65));
  const auto may_need_rows = [&](const std::string& name) {
    const auto own = s->job.tables.find(name);
    const bool keeps = own != s->job.tables.end() && KeepsResiduals(own->second.push_codec);
    return s->Of(name).apply == ApplyMode::kImmediate && !keeps;
  };
  if (rng.Chance(0.5) && may_need_rows("counts")) s->counts_rule = "dc_asgd";
  if (!rng.Chance(0.7)) return;
  constexpr const char* kRules[] = {"signum",  "staleness_aware_sgd", "delay_adaptive_sgd",
                                    "dc_asgd", "dc_asgd_adaptive",    "gap_aware"};
  const std::size_t rules = std::size(kRules) - (may_need_rows("layer") ? 0 : 3);
  s->layer_rule = kRules[rng.Below(rules)];
}

// Gradients are pushed only where a gradient changes a row by exactly its value, and needs no pulled row.
void ChooseChanges(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6368616e67));
  s->changes = rng.Chance(0.3);
  const auto own = s->job.tables.find("counts");
  const bool keeps = own != s->job.tables.end() && KeepsResiduals(own->second.push_codec);
  s->changes_step = s->changes && !s->life.on && s->counts_row_codec == ValueCodec::kFp32 && !keeps &&
                    s->counts_rule == "sgd" && rng.Chance(0.7);
}

// Switches off gradients for rows that workers assign: a shard discards those of late workers, which RowChanges does
// not model.
void ChooseBackups(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6261636b));
  const auto closes_early = [](const ConsistencySpec& spec) {
    return spec.mode == ConsistencyMode::kBsp && spec.apply == ApplyMode::kAggregated;
  };
  if (!closes_early(s->job.consistency) || s->workers < 2 || s->program_state || !rng.Chance(0.6)) return;
  const auto waits = [&](const ConsistencySpec& spec) {
    return spec.mode != ConsistencyMode::kAsp && !closes_early(spec);
  };
  if (waits(s->counts) || waits(s->layer)) return;
  const auto backups = std::uint16_t(1 + rng.Below(s->workers - 1));
  for (ConsistencySpec* spec : {&s->job.consistency, &s->counts, &s->layer})
    if (closes_early(*spec)) spec->backup_workers = backups;
  for (auto& [name, own] : s->job.tables)
    if (own.has_consistency && closes_early(own.consistency)) own.consistency.backup_workers = backups;
  s->depth = 1;
  s->job.train.prefetch = 0;
  s->changes_step = false;
}

// Gives all ssp tables the same range.
void ChooseStalenessRange(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x72616e6765));
  if (!rng.Chance(0.5)) return;
  const auto range = std::uint16_t(1 + rng.Below(6));
  const auto widen = [&](ConsistencySpec* spec) {
    if (spec->mode == ConsistencyMode::kSsp) spec->staleness_range = range;
  };
  for (ConsistencySpec* spec : {&s->job.consistency, &s->counts, &s->layer}) widen(spec);
  for (auto& [name, own] : s->job.tables) {
    if (own.has_consistency) widen(&own.consistency);
    own.worker_cache.refresh_rows = false;
  }
  s->counts_cache.refresh_rows = false;
}

void ChooseLists(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6c697374));
  s->job.train.key_caching = rng.Chance(0.8);
  s->held_keys_bytes = 100 + rng.Below(3'000);
  s->held_lists_bytes_max = rng.Chance(0.5) ? 200 + rng.Below(3'000) : 1 << 20;
}

void ChooseLanes(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6c616e65));
  if (rng.Chance(0.4)) s->job.fleet.lanes = std::uint32_t(2 + rng.Below(3));
}

void ChooseCache(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6361636865));
  if (!rng.Chance(0.5)) return;
  if (!s->HasFixedBits() && rng.Chance(0.4)) {
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
  SplitMix refresh(Mix64(seed ^ 0x72656672657368));
  for (const char* name : {"counts", "layer"}) {
    WorkerCacheSpec& cache = s->job.tables[name].worker_cache;
    if (s->Of(name).mode == ConsistencyMode::kSsp && cache.bytes != 0) cache.refresh_rows = refresh.Chance(0.5);
  }
  s->counts_cache = s->job.tables["counts"].worker_cache;
  s->reads_again = rng.Chance(0.5);
}

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

}  // namespace tarn::sim
