// What a seed means: the fleet, the job and the faults of one simulated run. A pure function of the seed.
#pragma once

#include <cstdint>
#include <string>

#include "core/job.h"

namespace tarn::sim {

// Chances are per message unless said otherwise; times in microseconds of simulated time.
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
  std::uint32_t crashes = 0;  // of workers; each comes back
  TimeUs until_us = 0;        // no new fault after this time
};

struct Scenario {
  std::uint64_t seed = 0;
  Job job;
  std::uint32_t shards = 1;  // in all
  std::uint32_t workers = 1;
  std::uint64_t train_rows = 0, valid_rows = 0, test_rows = 0;
  std::uint32_t keys_per_row = 4;
  std::uint64_t key_space = 100;
  std::uint32_t depth = 1;  // batches whose pulls are under way at once
  TimeUs compute_max_us = 5'000;
  bool push_pull = false;           // use PushPull where the loop allows
  std::size_t cut_slice_bytes = 1;  // of a checkpoint, between messages
  TimeUs cut_pause_us = 0;
  bool through_frames = false;  // every message is encoded and decoded on its way
  Faults faults;
  std::string Describe() const;  // one line
};

Scenario MakeScenario(std::uint64_t seed);

}  // namespace tarn::sim
