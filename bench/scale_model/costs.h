// Costs of the work of a fleet in nanoseconds of a thread: linear functions fitted to measurements (calibrate.h) and
// stored in a text file of "name value" lines.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn::scale {

enum class Work : std::uint8_t {
  // A batch; rows: samples.
  kRead,     // reader's thread
  kPlan,     // reader's thread
  kCompute,  // forward, backward
  // worker::Client, a message and its rows; other: messages times shards of the fleet (a step visits all lanes).
  kAsk,
  kTakeReply,
  kPush,
  kTakeAck,
  kTick,
  kTakeTickAck,
  kSettle,  // the end of a turn of the client's loop, after the turn's messages
  // server::Shard, a message and its rows.
  kPark,    // a pull arrives and is parked
  kServe,   // the answer to a pull is made
  kGather,  // an aggregated push arrives
  kApply,   // an immediate push arrives and is applied
  kShardTick,
  kClose,  // a clock closes; messages and rows: the contributions and their rows; other: distinct rows
  // net::ZmqTransport, the caller's thread: a message; rows: bytes; other: frames.
  kSend,
  kReceive,
  // ZeroMQ's thread and the kernel: a frame; rows: bytes.
  kIoSend,
  kIoReceive,
  kCount,
};
inline constexpr std::size_t kWorks = static_cast<std::size_t>(Work::kCount);

std::string_view Name(Work work);

// The size of a piece of work. rows: of sparse tables, dense: rows of dense tables, both as Workload::WorkRows counts
// them, unless Work defines rows; other: unit: see Work; tables: the number of tables, summed over the messages.
inline constexpr std::size_t kParts = 5;
struct Amount {
  double messages = 0, rows = 0, dense = 0, other = 0, tables = 0;
  std::array<double, kParts> parts() const { return {messages, rows, dense, other, tables}; }
};

// A linear cost: the sum of the parts of an Amount, each times its cost (third_ns: of `other`).
struct Line {
  double message_ns = 0, row_ns = 0, dense_ns = 0, third_ns = 0, table_ns = 0;
  double operator()(const Amount& a) const {
    return a.messages * message_ns + a.rows * row_ns + a.dense * dense_ns + a.other * third_ns + a.tables * table_ns;
  }
};

struct Costs {
  std::array<Line, kWorks> lines;
  // Factor for the time of all threads while another core of their host is busy.
  double busy_slowdown = 1;
  // From a thread's send to the receiving thread's wake-up on one host, besides the above.
  double local_latency_ns = 0;
  const Line& operator[](Work work) const { return lines[static_cast<std::size_t>(work)]; }
  Line& operator[](Work work) { return lines[static_cast<std::size_t>(work)]; }
};

std::string ToText(const Costs& costs);
// kNotFound: cannot be read. kInvalidArgument: a line is invalid or missing; the error names the file and the line.
Expected<Costs> ReadCosts(const std::string& path);

// One measurement: work and time.
struct Sample {
  Amount amount;
  double ns = 0;
};
// Least-squares fit of the relative errors of the samples, without negative coefficients. Outliers (a thread that was
// preempted) are dropped and the fit is repeated.
Line Fit(std::span<const Sample> samples);

}  // namespace tarn::scale
