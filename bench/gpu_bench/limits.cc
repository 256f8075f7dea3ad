#include "bench/gpu_bench/limits.h"

#include <algorithm>

#include "bench/gpu_bench/parts.h"
#include "kernels/elementwise.h"

namespace tarn::bench {

namespace {

// The time of a one-element kernel: the mean over many queued launches, and with a wait after each.
void MeasureLaunches(const Run& run) {
  const Array one = run.place.Allocate(sizeof(float), "a number");
  const auto launch = [&] { run.place.Run([&](auto&... on) { kernels::Fill(on..., 1, 0.0f, one.as<float>()); }); };
  run.Report("limit.launch", 1e6 * SecondsOf(run.place, run.timing, launch), "us", {});
  const double waited = SecondsOf(run.place, run.timing, [&] { launch(), run.place.Wait(); });
  run.Report("limit.launch_and_wait", 1e6 * waited, "us", {});
}

}  // namespace

void MeasureLimits(const Run& run) {
  const std::size_t bytes = run.sizes.limit_bytes;
  run.Report("limit.copy", run.limits.CopyBytesPerSecond(bytes) / 1e9, "GB/s", {{"bytes", std::uint64_t{bytes}}});
  double best = 0;
  std::uint64_t extent = 0;
  for (std::size_t n = run.sizes.limit_extent; n >= run.sizes.limit_extent / 4; n /= 2) {
    const double rate = 2 * double(n) * double(n) * double(n) / run.limits.ProductSeconds({.m = n, .n = n, .k = n});
    if (rate > best) best = rate, extent = n;
  }
  run.Report("limit.product", best / 1e12, "TFLOP/s",
             {{"extent", extent}, {"precision", std::string(run.place.on_gpu() ? "bf16" : "fp32")}});
  const std::size_t copy_bytes = bytes / 8;
  const auto host_copy = [&](const char* name, bool to_host, bool pinned) {
    const double rate = run.limits.HostCopyBytesPerSecond(copy_bytes, to_host, pinned);
    run.Report(name, rate / 1e9, "GB/s", {{"bytes", std::uint64_t{copy_bytes}}});
  };
  host_copy("limit.from_host", false, true);
  host_copy("limit.to_host", true, true);
  host_copy("limit.from_host_pageable", false, false);
  host_copy("limit.to_host_pageable", true, false);
  MeasureLaunches(run);
}

}  // namespace tarn::bench
