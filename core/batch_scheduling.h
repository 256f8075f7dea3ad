// How the kernel schedules the threads of servers and workers.
#pragma once

namespace tarn {

// From now on, this thread and those that it starts do not interrupt a running thread when they wake: they wait until
// it sleeps or its time slice ends (Linux's SCHED_BATCH). Otherwise, on a machine with fewer cores than busy threads,
// the first shard that a worker's message reaches interrupts the worker before it has sent the messages to the other
// shards. Changes nothing if the user has chosen a policy (chrt), or if the system does not permit it.
void UseBatchScheduling();

}  // namespace tarn
