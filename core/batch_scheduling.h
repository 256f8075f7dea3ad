// How the kernel schedules the threads of servers and workers.
#pragma once

namespace tarn {

// Makes this thread, and those that it starts from now on, wait when they wake until the thread that runs on their core
// sleeps or its time slice ends (Linux's SCHED_BATCH). With the default policy, on a machine with fewer cores than busy
// threads, the first shard that a worker's messages reach interrupts the worker before it has sent those to the other
// shards. Keeps nice values. Changes nothing if the user has chosen another policy (chrt). Returns false if the system
// does not permit the change.
[[nodiscard]] bool UseBatchScheduling();

inline constexpr const char* kNoBatchScheduling =
    "cannot set the policy SCHED_BATCH, so threads keep the default one and are slower where they outnumber cores: "
    "permit sched_getscheduler and sched_setscheduler, for example in the container's seccomp profile";

}  // namespace tarn
