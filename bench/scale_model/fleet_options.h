// What a fleet in simulated time is made of, and what it shows. Plain values.
#pragma once

#include <cstdint>

namespace tarn::scale {

struct NetworkOptions {
  double gbit_per_second = 25;  // of a node, each way; 0: no limit
  double latency_us = 50;       // one way
};

struct StragglerOptions {
  double share = 0.01;        // of the nodes
  double times_slower = 2;    // all that their threads do
  double period_seconds = 0;  // who is slow is drawn anew after so long; 0: never
};

struct FleetOptions {
  std::uint32_t workers = 1;
  std::uint32_t servers = 1;  // of one shard each
  std::uint32_t bundle = 1;   // servers simulated as one shard; divides `servers`
  unsigned cores = 0;         // that all nodes share, on one host and without a network; 0: a machine a node
  std::uint32_t warm_up = 3;  // clocks before those that count
  std::uint32_t clocks = 10;
  NetworkOptions network;
  StragglerOptions stragglers;
  std::uint64_t seed = 1;
  bool free = false;            // nothing takes time but the batch
  bool free_ticks = false;      // ticks and their acknowledgements take nothing: what a cheaper way for them could gain
  double progress_seconds = 0;  // say on stderr how far it is, so often; 0: never
};

struct FleetResult {
  double samples_per_second = 0;
  double clock_seconds = 0;  // samples_per_second as time between a worker's batches
  double batch_seconds = 0;  // of one worker alone that waits for nothing
  // Shares of the time that counts, means over nodes of a kind; and of the busiest server.
  double worker_compute = 0, worker_messages = 0, worker_waits = 0;
  double server_busy = 0, server_busiest = 0, server_io = 0, link_busiest = 0;
  double worker_io = 0;
  double messages_per_clock = 0, tick_messages_per_clock = 0, bytes_per_clock = 0;  // of the real fleet
  std::uint64_t refused = 0, repeats = 0;
  double staleness_mean = 0;
  double wall_seconds = 0, peak_gib = 0;
  std::uint64_t events = 0;
  double scheduler_us = 0;  // that the real scheduler took here for a message, setting up included
};

}  // namespace tarn::scale
