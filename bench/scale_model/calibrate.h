// Measures the costs of a job's work on this machine (costs.h), with the real code and the job's data:
//
//   read, plan, compute   one thread, batches of several sizes, alone and while another core is busy with the same
//   the state machines    RunFleet with a meter: a worker and its shards in one thread, rows and optimizers as the
//                         job's
//   the transport         net::ZmqTransport to an echo in another process, over sockets on loopback: machines of a
//                         fleet share no memory
#pragma once

#include "bench/scale_model/costs.h"
#include "core/job/job.h"

namespace tarn::scale {

struct CalibrateOptions {
  double seconds = 1;  // approximate time per measurement
};

// Forks, so no other thread may run. Prints its progress on stderr.
Expected<Costs> Calibrate(const Job& job, const CalibrateOptions& options);

}  // namespace tarn::scale
