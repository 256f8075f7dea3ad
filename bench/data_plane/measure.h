// Measuring and printing in the benchmarks of the data plane: windows of operations in flight over a fixed time, and
// one line of JSON per figure on stdout. Single-threaded.
//
//   const double per_second = PerSecond({.seconds = 1}, 8, [&] { return client.Pull(table, keys); }, ok);
//   Print({"tarn.tcp.sparse_pull", per_second * 10'000, "rows/s", {{"depth", 8}}});
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tarn::bench {

// Seconds of a monotonic clock.
inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Prints `what` to stderr, with the system's text for the error `number` if that is not 0, and exits with status 1.
// Children (child.h) end with the process.
[[noreturn]] void Die(std::string_view what, int number = 0);
// If `good` is false, exits like Die(what, errno).
void Require(bool good, std::string_view what);

using Setting = std::pair<std::string, std::variant<std::uint64_t, std::string>>;

struct Figure {
  std::string name;  // "tarn.tcp.sparse_pull": system, transport and operation
  double value = 0;
  std::string unit;
  std::vector<Setting> settings;                     // everything that the value depends on
  std::vector<std::pair<std::string, double>> more;  // further numbers of the same measurement: "p99", "worker_cores"
};

// Prints a line {"name":..,"value":..,"unit":..,"settings":{..},"cores":2} with `more`, and flushes it. `cores`: the
// number that this process may use.
void Print(const Figure& figure);
// Prints a line {"name":..,"skipped":"why"} for a figure that cannot be measured here.
void PrintSkipped(const std::string& name, const std::string& why);

// The `share` quantile (0.5: the median) of values, which are reordered.
double Quantile(std::vector<double>* values, double share);

// Prevents the compiler from removing the writes to the bytes at `data`.
inline void Keep(const void* data) { asm volatile("" : : "r"(data) : "memory"); }

// The time of a measurement. A warm-up of a quarter of this time precedes it and is not counted.
struct Duration {
  double seconds = 1;
  double warm_up() const { return seconds / 4; }
};

// Operations per second with `depth` always in flight: `start` begins one and returns its handle, `finish` waits for
// it. Operations end in the order of their start. Counts at least `depth` of them, however long they take.
template <typename Start, typename Finish>
double PerSecond(const Duration& duration, std::size_t depth, Start start, Finish finish) {
  using Handle = decltype(start());
  std::deque<Handle> in_flight;
  const auto step = [&] {
    while (in_flight.size() < depth) in_flight.push_back(start());
    finish(in_flight.front());
    in_flight.pop_front();
  };
  const double begin = Now();
  do step();
  while (Now() - begin < duration.warm_up());
  const double warm = Now();
  double now = warm;
  std::uint64_t done = 0;
  do {
    step();
    ++done;
    now = Now();
  } while (now - warm < duration.seconds || done < depth);
  for (Handle& handle : in_flight) finish(handle);
  return double(done) / (now - warm);
}

// Runs operations one at a time and returns the microseconds of each; those of the warm-up are left out.
template <typename Operation>
std::vector<double> Latencies(const Duration& duration, Operation operation) {
  std::vector<double> out;
  const double begin = Now();
  while (true) {
    const double before = Now();
    if (!out.empty() && before - begin >= duration.warm_up() + duration.seconds) return out;
    operation();
    if (before - begin >= duration.warm_up()) out.push_back(1e6 * (Now() - before));
  }
}

// Prints the median in microseconds as the figure's value, with the 99th percentile (`p99`) and the number of
// operations.
void PrintLatencies(Figure figure, std::vector<double> microseconds);

}  // namespace tarn::bench
