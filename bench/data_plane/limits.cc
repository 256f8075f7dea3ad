// The limits for push_pull: see --help and README.md.
#include "bench/data_plane/limits.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/limits.h"

namespace tarn::bench {
namespace {

constexpr int kExitUsage = 2;

constexpr const char* kAbout =
    "Measures limits of this machine for the operations of push_pull. Prints one line of JSON per figure. Except for\n"
    "memory.copy, the last part of a name is the operation's name in push_pull:\n\n"
    "  memory.copy_SIZE     memcpy, one thread, GB/s\n"
    "  array.sparse_pull    random rows at known addresses, copied (pull) or updated (push), one thread\n"
    "  store.sparse_pull    the same through the servers' row store: look-up by key, no transport\n"
    "  zmq.TRANSPORT.*      ROUTER and DEALER in two processes with messages of the operation's size\n"
    "  socket.tcp.*         plain sockets on loopback, two processes\n"
    "  shm.*                two processes that copy through a ring in shared memory, both spinning\n\n"
    "  data_plane_limits --only zmq --seconds 0.5\n\n"
    "Exit status: 0 done, 1 failed, 2 bad usage.";

constexpr struct {
  const char* name;
  void (*measure)(const LimitOptions&);
} kParts[] = {{"copy", MeasureCopy},
              {"rows", MeasureRows},
              {"zmq", MeasureZmq},
              {"sockets", MeasureSockets},
              {"shm", MeasureSharedMemory}};

bool Wanted(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

void AddOptions(CLI::App* app, LimitOptions* o, std::vector<std::string>* only) {
  app->add_option("--only", *only, "copy, rows, zmq, sockets or shm; may be repeated (default: all)")
      ->check(CLI::IsMember({"copy", "rows", "zmq", "sockets", "shm"}));
  app->add_option("--for", o->operations,
                  "zmq, sockets and shm: only sparse, dense or small operations; may be repeated (default: all)")
      ->check(CLI::IsMember({"sparse", "dense", "small"}));
  app->add_option("--rows", o->rows, "rows of the array")->capture_default_str()->check(CLI::Range(1L, 1L << 40));
  app->add_option("--dim", o->dim, "fp32 values per row")
      ->capture_default_str()
      ->check(CLI::Range(1u, limits::kRowDimMax));
  app->add_option("--batch", o->batch, "rows per sparse request")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("--depth", o->depth, "sparse requests in flight")->capture_default_str()->check(CLI::Range(1, 1024));
  app->add_option("--small-depth", o->small_depth, "exchanges of 1 KB in flight")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  app->add_option("--seconds", o->duration.seconds,
                  "seconds per measurement; a warm-up of a quarter of this time precedes it")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
}

int Main(int argc, char** argv) {
  LimitOptions options;
  std::vector<std::string> only;
  CLI::App app{kAbout};
  AddOptions(&app, &options, &only);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  for (const auto& part : kParts)
    if (Wanted(only, part.name)) part.measure(options);
  return 0;
}

}  // namespace

std::vector<Exchange> Exchanges(const LimitOptions& o) {
  const std::size_t keys = o.batch * sizeof(std::uint64_t);
  const std::size_t values = o.batch * o.dim * sizeof(float);
  constexpr std::size_t kMb = std::size_t{1} << 20;
  constexpr double kGb = 1e-9 * double(kMb);
  std::vector<Exchange> all = {
      {"sparse_pull", kAckBytes + keys, values, o.depth, double(o.batch), "rows/s"},
      {"sparse_push", kAckBytes + keys + values, kAckBytes, o.depth, double(o.batch), "rows/s"},
      {"dense_pull_1mb", kAckBytes, kMb, 8, kGb, "GB/s"},
      {"dense_push_1mb", kMb, kAckBytes, 8, kGb, "GB/s"},
      {"dense_pull_16mb", kAckBytes, 16 * kMb, 3, 16 * kGb, "GB/s"},
      {"dense_push_16mb", 16 * kMb, kAckBytes, 3, 16 * kGb, "GB/s"},
      {"small_pull_many", kAckBytes, kSmallBytes, o.small_depth, 1, "pulls/s"},
      {"small_pull_one", kAckBytes, kSmallBytes, 1, 1, "us", true}};
  std::erase_if(all, [&](const Exchange& e) {
    return !Wanted(o.operations, std::string(e.name).substr(0, std::string_view(e.name).find('_')));
  });
  return all;
}

Largest LargestOf(const std::vector<Exchange>& exchanges) {
  Largest largest;
  for (const Exchange& exchange : exchanges) {
    largest.request_bytes = std::max(largest.request_bytes, exchange.request_bytes);
    largest.reply_bytes = std::max(largest.reply_bytes, exchange.reply_bytes);
  }
  return largest;
}

Figure ExchangeFigure(const char* prefix, const Exchange& exchange) {
  return {.name = fmt::format("{}.{}", prefix, exchange.name),
          .value = 0,
          .unit = exchange.unit,
          .settings = {{"request_bytes", exchange.request_bytes},
                       {"reply_bytes", exchange.reply_bytes},
                       {"depth", exchange.depth}},
          .more = {}};
}

}  // namespace tarn::bench

int main(int argc, char** argv) { return tarn::bench::Main(argc, argv); }
