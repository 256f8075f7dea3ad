#include "bench/gpu_bench/limits.h"

#include <algorithm>

#include "bench/gpu_bench/parts.h"

namespace tarn::bench {

void MeasureLimits(const Run& run) {
  const std::size_t bytes = run.sizes.limit_bytes;
  run.Tell("limit.copy", run.limits.CopyBytesPerSecond(bytes) / 1e9, "GB/s", {{"bytes", std::uint64_t{bytes}}});
  double best = 0;
  std::uint64_t extent = 0;
  for (std::size_t n = run.sizes.limit_extent; n >= run.sizes.limit_extent / 4; n /= 2) {
    const double rate = 2 * double(n) * double(n) * double(n) / run.limits.ProductSeconds({.m = n, .n = n, .k = n});
    if (rate > best) best = rate, extent = n;
  }
  run.Tell("limit.product", best / 1e12, "TFLOP/s",
           {{"extent", extent}, {"precision", std::string(run.place.on_gpu() ? "bf16" : "fp32")}});
  const std::size_t there = bytes / 8;
  const Array host = run.place.AllocateOnHost(there, "a copy"), placed = run.place.Allocate(there, "a copy");
  std::fill_n(host.as<char>(), there, '\1');
  const double seconds =
      SecondsOf(run.place, run.timing, [&] { run.place.Bring(host.as<char>(), there, placed.as<char>()); });
  run.Tell("limit.from_host", double(there) / seconds / 1e9, "GB/s", {{"bytes", std::uint64_t{there}}});
}

}  // namespace tarn::bench
