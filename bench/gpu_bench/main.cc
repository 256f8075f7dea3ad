// Measures tarn's kernels on a GPU and the GPU's limits; prints one line of JSON per figure. bench/gpu runs it together
// with a fleet and PyTorch, and makes a table.
//
//   gpu_bench                          everything
//   gpu_bench --only limits products   the limits of the machine, and matrix products
//   gpu_bench --device cpu --tiny      on this thread with tiny sizes, as a test

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bench/gpu_bench/parts.h"

namespace tarn::bench {
namespace {

constexpr int kExitNoGpu = 3;

// In order of execution.
const std::vector<std::pair<std::string, void (*)(const Run&)>> kParts = {
    {"limits", MeasureLimits},         {"embedding", MeasureEmbedding}, {"plans", MeasurePlans},
    {"optimizers", MeasureOptimizers}, {"products", MeasureProducts},   {"hot_rows", MeasureHotRows},
    {"steps", MeasureSteps},
};

struct Options {
  std::string device = "gpu";
  std::vector<std::string> only;
  bool tiny = false, probe = false;
  Sizes sizes;
  Timing timing;
};

void AddOptions(CLI::App* app, Options* options) {
  std::vector<std::string> names;
  for (const auto& [name, measure] : kParts) names.push_back(name);
  Sizes& sizes = options->sizes;
  app->add_option("--device", options->device, "gpu, gpu:N, or cpu: this thread, to test the benchmark")
      ->capture_default_str();
  app->add_option("--only", options->only, fmt::format("parts: {} (default: all)", fmt::join(names, ", ")))
      ->check(CLI::IsMember(names));
  app->add_flag("--probe", options->probe, "report whether the device exists, and exit");
  app->add_option("--batch", sizes.batch, "rows per batch")->capture_default_str()->check(CLI::Range(1u, 1u << 20));
  app->add_option("--fields", sizes.fields, "keys per row")->capture_default_str()->check(CLI::Range(2u, 100u));
  app->add_option("--dim", sizes.dim, "values per embedding")->capture_default_str()->check(CLI::Range(1u, 1024u));
  app->add_option("--field-keys", sizes.field_keys, "distinct keys per field")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{2}, std::uint64_t{1} << 40));
  app->add_option("--skew", sizes.skew, "Zipf exponent of the keys")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 4.0));
  app->add_option("--hot-rows", sizes.hot_rows, "rows of 64 values in the cache, 289 bytes each")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{128}, std::uint64_t{4'000'000'000}));
  app->add_option("--seconds", options->timing.seconds, "approximate seconds per figure")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 100.0));
  app->add_flag("--tiny", options->tiny, "use tiny sizes unless given, to test the benchmark");
}

void MakeTiny(const CLI::App& app, Options* options) {
  Sizes& sizes = options->sizes;
  const auto set = [&](const char* name, auto* value, auto small) {
    if (app.count(name) == 0) *value = small;
  };
  set("--batch", &sizes.batch, 64u);
  set("--fields", &sizes.fields, 5u);
  set("--dim", &sizes.dim, 8u);
  set("--field-keys", &sizes.field_keys, 100u);
  set("--hot-rows", &sizes.hot_rows, 4096u);
  set("--seconds", &options->timing.seconds, 0.001);
  sizes.optimizer_rows = 1000;
  sizes.hot_keys = 256;
  sizes.limit_bytes = 1 << 20;
  sizes.limit_extent = 64;
}

std::unique_ptr<Limits> LimitsOf(const Place& place, const Timing& timing) {
#if TARN_HAS_CUDA
  if (place.on_gpu()) return MakeGpuLimits(timing);
#endif
  (void)place;
  return MakeHostLimits(timing);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Measures tarn's kernels on a GPU and the limits of the GPU. Prints one line of JSON per figure."};
  app.footer("\nexit codes  0 done    1 a part failed    2 bad usage    3 no GPU: nothing was measured");
  AddOptions(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.tiny) MakeTiny(app, &options);
  auto place = Place::Make(options.device);
  if (!place && place.error().code == ErrorCode::kInvalidArgument) {
    fmt::print(stderr, "gpu_bench: {}\n", place.error().message);
    return 2;
  }
  if (!place) {
    fmt::print(stderr, "gpu_bench: no GPU: nothing was measured: {}\n", place.error().message);
    return kExitNoGpu;
  }
  if (options.probe) {
    fmt::print("{}\n", (*place)->name());
    return 0;
  }
  const std::unique_ptr<Limits> limits = LimitsOf(**place, options.timing);
  const Run run{**place, *limits, options.sizes, options.timing};
  for (const auto& [name, measure] : kParts)
    if (options.only.empty() || std::ranges::find(options.only, name) != options.only.end()) measure(run);
  return 0;
}

}  // namespace
}  // namespace tarn::bench

int main(int argc, char** argv) { return tarn::bench::Main(argc, argv); }
