// Runs the GPU's tests on the emulated one. TARN_EMULATED_KERNELS=1 prints what kernels were launched and what they
// asked of the memory; =all fails if one of them never was. TARN_EMULATED_PINNED=1 fails if the GPU copied from or to
// memory of the host that is not pinned.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tests/emulated/emulated.h"

namespace {

// One that is compiled with its like and that no caller asks for: rounding to the format that is there.
constexpr std::string_view kNeverAskedFor = "ForEachRow<RoundTo<float>";

// Whether all kernels were launched.
bool TellKernels() {
  std::vector<emulated::KernelUse> kernels = emulated::Kernels();
  std::ranges::sort(kernels, {}, &emulated::KernelUse::name);
  bool all = true;
  for (const emulated::KernelUse& k : kernels) {
    std::cout << k.launches << " launches, " << k.threads << " threads, " << k.read_bytes << " bytes read, "
              << k.written_bytes << " written: " << k.name << "\n";
    all = all && (k.launches != 0 || k.name.starts_with(kNeverAskedFor));
  }
  std::cout << kernels.size() << " kernels"
            << (all ? ", each was launched\n" : ", of which some were never launched\n");
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int failed = RUN_ALL_TESTS();
  const std::uint64_t pageable = emulated::CountsOf().pageable_copies;
  if (std::getenv("TARN_EMULATED_PINNED") != nullptr && pageable != 0) {
    std::cout << pageable << " copies were from or to memory that is not pinned\n";
    failed = 1;
  }
  const char* tell = std::getenv("TARN_EMULATED_KERNELS");
  if (tell == nullptr) return failed;
  const bool all = TellKernels();
  return failed != 0 || (std::string_view(tell) == "all" && !all);
}
