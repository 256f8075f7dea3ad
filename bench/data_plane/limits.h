// Upper limits of this machine for the operations of push_pull. Each function measures one and prints its figures, with
// the name of the operation that they limit. The functions fork, so no other thread may run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/data_plane/measure.h"

namespace tarn::bench {

struct LimitOptions {
  Duration duration;
  std::uint64_t rows = 10'000'000;
  std::uint32_t dim = 16;
  std::size_t batch = 10'000;
  std::size_t depth = 8;
  std::size_t small_depth = 64;
  std::vector<std::string> operations;  // sparse, dense, small; empty: all
};

// The messages of one operation of push_pull: a request and its reply.
struct Exchange {
  const char* name;
  std::size_t request_bytes, reply_bytes;
  std::size_t depth;  // in flight
  double units;       // per exchange: rows, GB
  const char* unit;
  bool round_trip = false;  // one at a time, measured in microseconds
};

inline constexpr std::size_t kSmallBytes = 1024;
inline constexpr std::size_t kAckBytes = 64;  // of a message without a payload

// The exchanges of the selected operations: keys and rows, tensors of 1 MB and 16 MB, 1 KB.
std::vector<Exchange> Exchanges(const LimitOptions& options);

// The largest request and reply of all exchanges.
struct Largest {
  std::size_t request_bytes = 0, reply_bytes = 0;
};
Largest LargestOf(const std::vector<Exchange>& exchanges);

// One exchange's figure, named PREFIX.NAME.
Figure ExchangeFigure(const char* prefix, const Exchange& exchange);

// memory.copy_*: memcpy of one thread.
void MeasureCopy(const LimitOptions& options);
// array.*: random rows at known addresses; store.*: the same through a server's row store, without a transport.
void MeasureRows(const LimitOptions& options);
// zmq.tcp.*, zmq.ipc.*: ROUTER and DEALER in two processes, one frame per message. Messages above 16 KiB are sent
// without a copy.
void MeasureZmq(const LimitOptions& options);
// socket.tcp.*: plain sockets on loopback.
void MeasureSockets(const LimitOptions& options);
// shm.*: copies into a ring in shared memory and out of it, in two processes that spin.
void MeasureSharedMemory(const LimitOptions& options);

}  // namespace tarn::bench
