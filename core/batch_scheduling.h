// How the kernel schedules the threads of servers and workers.
#pragma once

namespace tarn {

// From now on, this thread and those that it starts do not interrupt a running thread when they wake: they wait until
// it sleeps or its time slice ends (Linux's SCHED_BATCH). Otherwise, on a machine with fewer cores than busy threads,
// the first shard that a worker's messages reach interrupts the worker before it has sent those to the other shards.
// Nice values keep their effect. Changes nothing if the user has chosen another policy than the default (chrt). False:
// the system does not permit it.
bool UseBatchScheduling();

inline constexpr const char* kNoBatchScheduling =
    "the system does not permit batch scheduling (SCHED_BATCH): with more threads than cores this process is slower";

}  // namespace tarn
