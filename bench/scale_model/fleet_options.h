// Configuration and results of a fleet in simulated time. Plain values.
#pragma once

#include <cstdint>

namespace tarn::scale {

struct NetworkOptions {
  double gbit_per_second = 25;  // of a node, each way; 0: no limit
  double latency_us = 50;       // one way
};

struct StragglerOptions {
  double share = 0.01;  // share of slow nodes among the kinds enabled below
  bool workers = true, servers = true;
  // A slow worker's batch rows, as a share of the others' (train.batch_shares). Below 1, period_seconds must be 0, so
  // that the slow workers stay the same.
  double batch_share = 1;
  double times_slower = 2;    // factor for all work of their threads
  double period_seconds = 0;  // how often the slow nodes are chosen again; 0: never
};

struct FleetOptions {
  std::uint32_t workers = 1;
  std::uint32_t servers = 1;  // of one shard each
  std::uint32_t bundle = 1;   // servers simulated as one shard; divides `servers`
  // Number of cores of the one host that runs all nodes, without a network. Worker i runs on core i % cores, server i
  // on core cores - 1 - (i % cores). 0: a machine per node, with a core per thread.
  unsigned cores = 0;
  std::uint32_t warm_up = 3;  // clocks before the measured ones
  std::uint32_t clocks = 10;
  NetworkOptions network;
  StragglerOptions stragglers;
  std::uint64_t seed = 1;
  bool free = false;  // only the computation of batches takes time
  // Ticks and their acknowledgements take no time. Shows the most that cheaper ticks could gain.
  bool free_ticks = false;
  double progress_seconds = 0;  // period of progress lines on stderr; 0: none
};

struct FleetResult {
  double samples_per_second = 0;
  double clock_seconds = 0;  // mean time between a worker's batches
  double batch_seconds = 0;  // of a single worker that never waits
  // Shares of the measured time. *_busiest: of the busiest server, and of the busiest link and direction. All others:
  // means over the workers or the servers; *_io: of their I/O threads.
  double worker_compute = 0, worker_messages = 0, worker_waits = 0;
  double server_busy = 0, server_busiest = 0, server_io = 0, link_busiest = 0;
  double worker_io = 0;
  // Of the modelled fleet: a message to a bundle counts once for each server that it would reach. Small messages share
  // frames.
  double messages_per_clock = 0, frames_per_clock = 0, tick_messages_per_clock = 0, bytes_per_clock = 0;
  // Over the whole run: rejections by shards, and repeats by workers.
  std::uint64_t refused = 0, repeats = 0;
  double staleness_mean = 0;
  double wall_seconds = 0, peak_gib = 0;
  std::uint64_t events = 0;
  double scheduler_us = 0;  // measured time of the real scheduler per message, including the messages of setup
};

}  // namespace tarn::scale
