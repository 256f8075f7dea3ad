// ps-lite as a peer of push_pull: see --help and README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "bench/data_plane/ps_lite.h"

namespace tarn::bench {

bool PsLiteOptions::Wants(const std::string& what) const {
  return only.empty() || std::ranges::find(only, what) != only.end();
}

namespace {

constexpr int kExitUsage = 2;
constexpr const char* kMissing =
    "this build has no ps-lite (tools/install bench; git clone https://github.com/dmlc/ps-lite build/peers/ps-lite; "
    "tools/build release)";

struct Operations {
  std::string what, prefix;
  std::vector<std::string> names;
};
const std::vector<Operations> kOperations = {
    {"sparse", "ps_lite", {"sparse_pull", "sparse_push"}},
    {"sparse", "ps_lite_array", {"sparse_pull", "sparse_push"}},
    {"dense", "ps_lite", {"dense_pull_1mb", "dense_push_1mb", "dense_pull_16mb", "dense_push_16mb"}},
    {"small", "ps_lite", {"small_pull_many", "small_pull_one"}}};
const std::vector<std::string> kTransports = {"tcp", "ipc"};

void PrintAllSkipped(const PsLiteOptions& options) {
  for (const std::string& transport : kTransports)
    for (const auto& [what, prefix, names] : kOperations)
      for (const std::string& name : names)
        if (options.Wants(what)) PrintSkipped(fmt::format("{}.{}.{}", prefix, transport, name), kMissing);
}

int Main(int argc, char** argv) {
  PsLiteOptions options;
  CLI::App app{
      "Measures ps-lite for comparison with push_pull: starts its scheduler, server and worker as processes\n"
      "and prints one line of JSON for each of\n\n"
      "  ps_lite.TRANSPORT.sparse_pull, sparse_push    random rows of a large table, SGD, many keys per request\n"
      "  ps_lite_array.TRANSPORT.sparse_pull, ...      the same, with rows in an array indexed by key\n"
      "  ps_lite.TRANSPORT.dense_pull_1mb, ...         whole tensors of 1 MB and 16 MB, each the value of one key\n"
      "  ps_lite.TRANSPORT.small_pull_many, _one       rows of 1 KB: many in flight, and the round trip of one\n\n"
      "TRANSPORT is tcp or ipc (DMLC_LOCAL). The server stores the rows of a table in one array. It looks up\n"
      "rows of ps_lite.TRANSPORT.sparse_* in a std::unordered_map, which ps-lite's own handler also uses.\n"
      "ps_lite_array needs no look-up and shows the limit of the transport. Before the measurement the\n"
      "client sorts the keys and allocates a value buffer per request in flight, for ZPush and ZPull.\n"
      "A build without ps-lite's sources prints a line with the field 'skipped' for each measurement.\n\n"
      "  ps_lite_peer --only sparse --rows 1000000\n\n"
      "Exit status: 0 done or skipped, 1 failed, 2 bad usage."};
  app.add_option("--only", options.only, "sparse, dense or small; may be repeated (default: all)")
      ->check(CLI::IsMember({"sparse", "dense", "small"}));
  app.add_option("--rows", options.rows, "rows of the sparse table")
      ->capture_default_str()
      ->check(CLI::Range(1L, 1L << 40));
  app.add_option("--dim", options.dim, "fp32 values per row")->capture_default_str()->check(CLI::Range(1, 4096));
  app.add_option("--batch", options.batch, "keys per request")->capture_default_str()->check(CLI::Range(1, 1'000'000));
  app.add_option("--depth", options.depth, "sparse requests in flight")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--seconds", options.duration.seconds,
                 "seconds per measurement; a warm-up of a quarter of this time precedes it")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
  try {
    app.parse(argc, argv);
    if (options.batch > options.rows)
      throw CLI::ValidationError(
          "--batch", fmt::format("{} distinct keys of {} rows: expected at most --rows", options.batch, options.rows));
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  if (!HasPsLite()) return PrintAllSkipped(options), 0;
  for (const std::string& transport : kTransports) MeasurePsLite(options, transport);
  return 0;
}

}  // namespace
}  // namespace tarn::bench

int main(int argc, char** argv) { return tarn::bench::Main(argc, argv); }
