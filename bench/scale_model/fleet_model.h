// A fleet in simulated time: the real scheduler::Scheduler, server::Shard and worker::Client, on a model of machines
// and of a network without faults. Deterministic. Simplifications:
//
//   - Payloads: rows have one value each; bytes on the wire and the work on them are counted for the table's real rows
//     (Workload). Pieces and credits are reduced in proportion.
//   - The scheduler and its messages take no time, because it is not on the data path.
//   - Nothing takes time before the measured clocks: joining, tables, the first views.
//   - A worker gets views with its own entry only: it looks at no other. Only the first asks for the tables: at every
//     message the scheduler looks at all who have asked, which is too much for thousands (10,000 x 7 tables).
//   - `bundle` servers may be simulated as one shard: a message to it stands for one to each server that holds one of
//     its rows. The worker and its link pay for all of them, each server for its part. It is as slow as its slowest,
//     and of dense tables it has the part of its fullest.
//   - A worker's client hears the messages of a turn and settles behind them, as the real loop. A turn of a bundle's
//     messages counts as many turns as the real fleet would at least need for them.
//   - A machine is one node, unless `cores` says how many cores all nodes share.
#pragma once

#include "bench/scale_model/costs.h"
#include "bench/scale_model/fleet_options.h"
#include "bench/scale_model/meter.h"
#include "bench/scale_model/workload.h"
#include "core/job/job.h"

namespace tarn::scale {

// `job`: consistency, prefetch and partition_bits; there must be at most 2^partition_bits shards. `meter`: measures
// steps; null: no measurement.
FleetResult RunFleet(const Job& job, const FleetOptions& options, const Costs& costs, Workload* workload, Meter* meter);

}  // namespace tarn::scale
