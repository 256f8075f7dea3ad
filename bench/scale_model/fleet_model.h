// A fleet in simulated time: the real scheduler::Scheduler, server::Shard and worker::Client, on a model of machines
// and of a network without faults. Deterministic. Simplifications:
//
//   - Payloads: rows have one value each; bytes on the wire and the work on them are counted for the table's real rows
//     (Workload). Pieces and credits are reduced in proportion.
//   - The scheduler and its messages take no time, because it is not on the data path.
//   - Nothing takes time before the measured clocks: joining, tables, the first views.
//   - A worker gets views with only its own entry, because it uses no other. Only the first worker requests the tables:
//     the scheduler checks all requests at every message, which is too slow for thousands (10,000 x 7 tables).
//   - `bundle` servers may be simulated as one shard. A message to this shard represents one message to each server
//     that stores rows of the message. The worker and its link bear the cost of all these messages; the simulated shard
//     bears that of the server with the largest part. A bundle is as slow as its slowest server.
//   - A worker's client receives the messages of a turn and then settles, like the real loop. A turn with messages of
//     bundles counts as the minimum number of turns that the real fleet would need for them.
//   - Each node has a machine of its own, unless all nodes share the `cores` of one host. A thread then keeps its core
//     until it sleeps or has had it for 4 ms; in the kernel a time slice ends at a tick of the timer, so it may be
//     shorter or longer.
#pragma once

#include "bench/scale_model/costs.h"
#include "bench/scale_model/fleet_options.h"
#include "bench/scale_model/meter.h"
#include "bench/scale_model/workload.h"
#include "core/job/job.h"

namespace tarn::scale {

// `job`: consistency, prefetch and partition_bits; there must be at most 2^partition_bits shards. `meter`: measures
// steps; null: no measurement. `slow_workload`: of slow workers; null: the same as that of the others.
FleetResult RunFleet(const Job& job, const FleetOptions& options, const Costs& costs, Workload* workload, Meter* meter,
                     Workload* slow_workload = nullptr);

}  // namespace tarn::scale
