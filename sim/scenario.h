// The scenario of a seed: the fleet, the job and the faults of one simulated run. A pure function of the seed.
#pragma once

#include <cstdint>
#include <string>

#include "core/job/job.h"

namespace tarn::sim {

// Probabilities are per message unless stated otherwise; times are in microseconds of simulated time.
struct Faults {
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;  // a message that ignores its connection's order
  double spike = 0;    // a message that takes up to spike_us longer
  TimeUs spike_us = 0;
  TimeUs delay_min_us = 100, delay_max_us = 2'000;
  std::uint32_t reconnects = 0;  // events over the faulty time
  std::uint32_t partitions = 0;
  std::uint32_t pauses = 0;
  std::uint32_t crashes = 0;        // of workers; each is restarted
  std::uint32_t second_starts = 0;  // a worker is started while its previous process still runs
  double crash_at_cut = 0;  // per worker and checkpoint: it crashes after the clock of the cut; its reports are lost
  double isolate_at_new_view = 0;  // per new view: a shard is cut off from the scheduler, for less than the lease
  double slow_store = 0, fail_store = 0, fail_manifest = 0;  // per write
  double full_store = 0;                                     // per chunk of a cut
  double lose_base = 0;                                      // per part of an incremental checkpoint
  double slow_tier = 0;                                      // per operation on rows on disk: takes seconds
  bool fail_tier = false, damage_tier = false;               // per shard, with probability 1/shards: the job ends
  bool scheduler_sleeps = false;                             // once, longer than the lease (rule N5)
  bool shard_sleeps = false;                                 // once, longer than the lease: the job ends
  std::uint32_t outages = 0;                                 // every process ends at once; only in jobs with a log
  double power_loss = 0;                   // probability that an outage, or a server death, loses unsynced writes
  double outage_awaits = 0;                // probability that an outage waits for a critical moment
  double outage_again = 0;                 // probability of another outage during the restart
  std::uint32_t outages_at_jumps = 0;      // further outages: each after a worker that is ahead skips a clock
  double slow_recovery = 0;                // per outage: a shard reads its log slowly while a worker dies
  std::uint32_t time_jumps = 0;            // the time that shards read jumps ahead by seconds to hours
  double jump_at_cut = 0;                  // probability of another time jump, per checkpoint order
  TimeUs sync_max_us = 1'000;              // longest write and longest sync, of logs and of the scheduler's disk
  std::uint32_t slow_syncs = 0;            // of logs, each of some shard: longer than the lease
  TimeUs stop_us = 0;                      // time of a request for a clean stop; 0: none
  std::uint32_t failed_syncs = 0;          // of logs, each of some shard; the job ends
  std::uint32_t server_deaths = 0;         // deaths of single servers: the job ends
  bool scheduler_dies = false;             // once, only the scheduler: all nodes end two leases later
  double clock_drift = 0;                  // by which fraction a node's clock may be faster or slower
  double fail_state = 0, stall_state = 0;  // per write of the scheduler; a stall takes two leases or more
  TimeUs until_us = 0;                     // the network heals then; most other faults begin by 0.1 s later
};

struct Scenario {
  std::uint64_t seed = 0;
  // Seed of all random events. A resumed run has the same `seed`, and so the same data, and another `draw`.
  std::uint64_t draw = 0;
  Job job;
  ConsistencySpec counts, layer;  // of the two tables
  ValueCodec counts_pull_codec = ValueCodec::kFp32, counts_row_codec = ValueCodec::kFp32;
  WorkerCacheSpec counts_cache;                          // of the workers, for counts
  std::string counts_rule = "sgd", layer_rule = "adam";  // update rules
  bool top_k = false;                                    // a table uses top-k pushes: workers have state in checkpoints
  bool ticks_late = false;                               // a worker computes between its pushes of a clock
  bool program_state = false;                            // workers have programs with state in checkpoints
  bool waits_for_pushes = false;                         // such a program ticks when its pushes are acknowledged
  double slow_batches = 0;    // probability that one takes longer than a lease between its pushes
  bool changes = false;       // workers assign and delete rows of counts, and push gradients to them if changes_step
  bool changes_step = false;  // (row_changes.h)
  LifeSpec life;              // of counts; a value then lacks the pushes before the row was created
  std::uint32_t shards = 1;   // in all
  std::uint32_t workers = 1;
  std::uint64_t train_rows = 0, valid_rows = 0, test_rows = 0;
  std::uint32_t keys_per_row = 4;
  std::uint64_t key_space = 100;
  bool reads_again = false;  // a worker pulls the rows of a batch twice
  std::uint32_t depth = 1;   // batches with pulls in progress at the same time
  TimeUs compute_max_us = 5'000;
  bool any_rank = false;                                   // workers accept any free rank
  bool serves_http = false;                                // every process has an HTTP address (rule N8)
  bool resume = false;                                     // resume from a checkpoint afterwards, in another fleet
  std::size_t parked_pulls_max = 0, bucket_bytes_max = 0;  // of a shard; 0: the default
  bool reports_done_at_once = false;                       // a worker reports a finished lease at once
  bool pulls_early = false;         // pull the dense rows of the next clock with each tick where the loop allows
  bool tables_together = false;     // pull and push all tables of a batch with one call
  bool through_frames = false;      // every message is encoded and decoded
  std::size_t cut_slice_bytes = 1;  // of a checkpoint, between messages
  TimeUs cut_pause_us = 0;
  std::size_t tier_bytes = 0;  // memory budget of a shard; further rows are on disk; 0: no limit
  std::size_t waiting_messages_max = 0, waiting_bytes_max = 0;  // of a shard, for rows on disk; 0: the default
  // Key lists: of a client for one shard, of a shard for all clients.
  std::size_t held_keys_bytes = 0, held_lists_bytes_max = 0;
  std::uint32_t requests = 0;  // requests for checkpoints from outside the fleet
  Faults faults;
  bool CutsAtClock() const;    // whether checkpoints are cut at a clock (rule K1)
  bool MayCutAtClock() const;  // also true if they are cut at a clock only because programs keep state
  // Whether the final parameters have the same bits whatever fails: all tables are bsp + aggregated, without backup
  // workers or expiry in seconds.
  bool HasFixedBits() const;
  const ConsistencySpec& Of(const std::string& table) const { return table == "counts" ? counts : layer; }
  std::string Describe() const;  // on one line
};

Scenario MakeScenario(std::uint64_t seed);

}  // namespace tarn::sim
