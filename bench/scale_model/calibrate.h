// Measures the costs of a job's work on this machine (costs.h), with the real code and the job's data:
//
//   read, plan, compute   one thread, batches of several sizes, alone and while another core does the same work
//   the state machines    simulated fleets of 2 to 64 workers in one thread (RunFleet with a Meter), with the job's
//                         rows and optimizers
//   the transport         net::ZmqTransport to an echo in another process, over sockets on loopback, because machines
//                         of a fleet share no memory
#pragma once

#include "bench/scale_model/costs.h"
#include "core/job/job.h"

namespace tarn::scale {

struct CalibrateOptions {
  double seconds = 1;  // approximate time per measurement
};

// Forks, so no other thread may run. Prints its progress on stderr. Errors: the data set or the model cannot be used.
Expected<Costs> Calibrate(const Job& job, const CalibrateOptions& options);

}  // namespace tarn::scale
