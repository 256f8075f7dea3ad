// Runs the GPU's tests on the emulated GPU. A test fails if the GPU copied from or to host memory that is not pinned:
// on a GPU the program would wait for such a copy. TARN_EMULATED_KERNELS=1 prints the launches, threads and bytes of
// each kernel; =all also fails if a kernel was never launched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "tests/emulated/emulated.h"

namespace {

// A template instance that no caller uses: rounding floats to floats.
constexpr std::string_view kNeverAskedFor = "ForEachRow<RoundTo<float>";

class CopiesArePinned : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override {
    const std::uint64_t before = std::exchange(pageable_, emulated::CountsOf().pageable_copies);
    EXPECT_EQ(pageable_ - before, 0u) << "copies from or to memory of the host that is not pinned";
  }

  std::uint64_t pageable_ = 0;
};

// Prints all kernels. Returns whether all were launched, except kNeverAskedFor.
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
  testing::UnitTest::GetInstance()->listeners().Append(new CopiesArePinned);
  const int failed = RUN_ALL_TESTS();
  const char* tell = std::getenv("TARN_EMULATED_KERNELS");
  if (tell == nullptr) return failed;
  const bool all = TellKernels();
  return failed != 0 || (std::string_view(tell) == "all" && !all);
}
