// The costs of a message in net::ZmqTransport over sockets on loopback, without shared memory. Internal to calibrate.
#pragma once

#include "bench/scale_model/costs.h"

namespace tarn::scale {

// Sets kSend, kReceive, kIoSend, kIoReceive and local_latency_ns. Forks: no other thread may run.
Status MeasureTransport(double seconds, Costs* costs);

}  // namespace tarn::scale
