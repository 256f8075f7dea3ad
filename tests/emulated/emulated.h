// For tests: counts of the operations on the emulated GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emulated {

struct Counts {
  std::uint64_t launches = 0, graphs = 0, copies = 0, pageable_copies = 0, waits = 0, allocations = 0;
  std::uint64_t bytes_to_device = 0, bytes_to_host = 0, bytes_within = 0;
  std::uint64_t release_threshold = 0;  // of the memory pool
  std::uint64_t products = 0;
};
Counts CountsOf();

// A kernel of the program, launched or not.
struct KernelUse {
  std::string name, where;
  std::uint64_t launches, threads, read_bytes, written_bytes, touched_bytes;
};
std::vector<KernelUse> Kernels();

}  // namespace emulated
