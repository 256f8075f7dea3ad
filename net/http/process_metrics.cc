#include "net/http/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace tarn::net {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

MetricList ProcessMetrics(std::chrono::system_clock::time_point started) {
  MetricList list;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    list.Add(ProcessMetric("cpu_seconds"), Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  std::ifstream statm("/proc/self/statm");
  if (std::uint64_t virtual_pages = 0, resident_pages = 0; statm >> virtual_pages >> resident_pages) {
    const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    list.Add(ProcessMetric("virtual_memory_bytes"), virtual_pages * page_bytes);
    list.Add(ProcessMetric("resident_memory_bytes"), resident_pages * page_bytes);
  }
  std::error_code error;
  const std::filesystem::directory_iterator open_files("/proc/self/fd", error);
  if (!error) list.Add(ProcessMetric("open_fds"), std::distance(begin(open_files), {}) - 1);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) list.Add(ProcessMetric("max_fds"), std::uint64_t{files.rlim_cur});
  list.Add(ProcessMetric("start_time_seconds"), std::chrono::duration<double>(started.time_since_epoch()).count());
  return list;
}

}  // namespace tarn::net
