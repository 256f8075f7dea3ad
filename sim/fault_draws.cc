#include "sim/fault_draws.h"

#include <algorithm>
#include <iterator>

#include "core/limits.h"

namespace tarn::sim {
namespace {

// Long batches, for workers with equal clocks: often one of them is behind for longer than the others need to report
// their progress.
void ChooseBehind(SplitMix& rng, Scenario* s) {
  s->workers = s->job.fleet.workers = std::max(2u, s->workers);
  s->compute_max_us = 50'000 + TimeUs(rng.Below(100'000));
  s->faults.sync_max_us = 2'000;
  s->reports_done_at_once = true;
  s->faults.outages += 2;
  s->faults.outage_awaits = 0.8;
}

}  // namespace

void ChooseFaults(SplitMix& rng, std::uint32_t workers, Faults* f) {
  // Each kind of fault is off in many runs, so that no kind always masks another.
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
  f->second_starts = rng.Chance(0.2) ? 1 : 0;
  f->isolate_at_new_view = rng.Chance(0.5) ? 0.05 + 0.3 * rng.Unit() : 0;
  f->crash_at_cut = rng.Chance(0.3) ? 0.4 * rng.Unit() : 0;
  f->slow_store = rng.Chance(0.4) ? rng.Unit() : 0;
  f->fail_store = rng.Chance(0.08) ? 0.3 * rng.Unit() : 0;
  f->fail_manifest = rng.Chance(0.08) ? rng.Unit() : 0;
  f->scheduler_sleeps = rng.Chance(0.15);
  f->shard_sleeps = rng.Chance(0.05);
}

void ChooseLog(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x6c6f67));
  if (!rng.Chance(0.4)) return;
  s->job.storage.durability = Durability::kLog;
  // Often, so that many outages follow a complete checkpoint.
  if (rng.Chance(0.75)) s->job.storage.checkpoint_clocks = 3 + rng.Below(8);
  s->faults.outages = std::uint32_t(rng.Below(6));
  // Often both kills and power losses in one run: data that was unsynced at a kill is read after it, and a later power
  // loss may lose it.
  s->faults.power_loss = rng.Chance(0.6) ? 0.5 : rng.Chance(0.5) ? 1.0 : 0.0;
  s->faults.outage_awaits = rng.Chance(0.8) ? 0.8 : 0;
  s->faults.outage_again = rng.Chance(0.5) ? 0.4 : 0;
  s->faults.sync_max_us = rng.Chance(0.3) ? 300'000 : 5'000;
  // Checkpoints complete soon, otherwise most outages would find none.
  if (rng.Chance(0.75)) {
    s->cut_slice_bytes = 100 + rng.Below(4'000);
    s->cut_pause_us = TimeUs(rng.Below(2'000));
    s->faults.slow_store = s->faults.full_store = 0;
  }
  if (s->HasFixedBits() && rng.Chance(0.4)) ChooseBehind(rng, s);
  s->reports_done_at_once |= rng.Chance(0.3);
  s->faults.slow_syncs = SplitMix(Mix64(seed ^ 0x73796e63)).Chance(0.2) ? 2 : 0;
  // Comparisons of determined bits are most useful without other faults.
  if (!rng.Chance(0.5)) return;
  s->faults.crashes = s->faults.second_starts = 0;
  s->faults.crash_at_cut = 0;
  s->faults.partitions = s->faults.pauses = 0;
  s->faults.scheduler_sleeps = s->faults.shard_sleeps = false;
}

void ChooseTier(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x74696572));
  if (!rng.Chance(0.4)) return;
  // The budget suffices for the rows of one message, for nearly all rows, or for a number between.
  s->tier_bytes = 1 + rng.Below(rng.Chance(0.7) ? 20'000 : 60'000);
  if (rng.Chance(0.2)) s->waiting_messages_max = 1 + rng.Below(4);
  if (rng.Chance(0.1)) s->waiting_bytes_max = 500 + rng.Below(5'000);
  s->faults.slow_tier = rng.Chance(0.4) ? 0.1 * rng.Unit() : 0;
  s->faults.fail_tier = rng.Chance(0.05);
  s->faults.damage_tier = rng.Chance(0.05);
}

void ChooseRestart(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x72657374));
  if (s->job.storage.durability != Durability::kLog || !s->HasFixedBits() || s->workers == 1 || !rng.Chance(0.6))
    return;
  s->faults.outages_at_jumps = std::uint32_t(rng.Below(3));
  s->faults.slow_recovery = rng.Chance(0.5) ? 0.5 : 0;
  s->faults.outages += 1;
}

void ChooseSchedulerDisk(std::uint64_t seed, Faults* f) {
  SplitMix rng(Mix64(seed ^ 0x7374617465));
  f->fail_state = rng.Chance(0.3) ? 0.2 * rng.Unit() : 0;
  f->stall_state = rng.Chance(0.3) ? 0.05 * rng.Unit() : 0;
}

void ChooseStop(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x73746f70));
  if (s->job.storage.durability == Durability::kNone || !rng.Chance(0.25)) return;
  // Mostly during batches, and in modes with workers at different clocks.
  s->faults.stop_us = 300'000 + TimeUs(rng.Below(3'000'000));
  s->faults.slow_store = std::min(s->faults.slow_store, 0.5);  // a stop waits for a minute for its checkpoint
  if (s->HasFixedBits() || !rng.Chance(0.7)) return;
  s->job.consistency = {rng.Chance(0.5) ? ConsistencyMode::kAsp : ConsistencyMode::kSsp, 0, ApplyMode::kImmediate};
  if (s->job.consistency.mode == ConsistencyMode::kSsp) s->job.consistency.staleness = std::uint32_t(1 + rng.Below(4));
  s->counts = s->layer = s->job.consistency;
  s->counts_cache = {};
  for (auto& [name, own] : s->job.tables) own.has_consistency = own.has_worker_cache = false;
}

void ChooseDeaths(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x64656174));
  if (rng.Chance(0.5)) s->faults.clock_drift = rng.Chance(0.8) ? 0.02 : 0.08;
  if (rng.Chance(0.06)) s->faults.server_deaths = 1 + std::uint32_t(rng.Below(2));
  s->faults.scheduler_dies = rng.Chance(0.04);
  if (s->job.storage.durability == Durability::kLog && rng.Chance(0.3))
    s->faults.failed_syncs = 1 + std::uint32_t(rng.Below(3));
}

void ChooseLateTicks(std::uint64_t seed, Scenario* s) {
  s->ticks_late = SplitMix(Mix64(seed ^ 0x6c617465)).Chance(0.25);
}

void ChooseProgramState(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x70726f67));
  if (s->job.storage.durability == Durability::kLog || !rng.Chance(0.3)) return;
  s->program_state = true;
  s->job.storage.durability = Durability::kCheckpoint;
  if (rng.Chance(0.7)) s->job.storage.checkpoint_clocks = 3 + rng.Below(10);
  s->resume |= rng.Chance(0.5);
}

// A stop then waits for such a program, which waits for the shards.
void ChooseWaits(std::uint64_t seed, Scenario* s) {
  SplitMix rng(Mix64(seed ^ 0x77616974));
  if (!s->program_state || s->faults.stop_us == 0 || !rng.Chance(0.5)) return;
  s->waits_for_pushes = s->ticks_late = true;
  if (rng.Chance(0.7)) s->slow_batches = 0.05;
}

}  // namespace tarn::sim
