// Shows that gradients are read once: a worker that shares the memory of its push may write to it at any time, and a
// value that changes after the check that it is finite must not reach the rows.
#include "server/store/row_stepper.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "server/store/store.h"

namespace tarn::server {
namespace {

// A page of memory whose next access may be trapped.
class Page {
 public:
  Page()
      : bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
        begin_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(begin_, MAP_FAILED);
  }
  ~Page() { munmap(begin_, bytes_); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  void Close() { mprotect(begin_, bytes_, PROT_NONE); }
  void Open() { mprotect(begin_, bytes_, PROT_READ | PROT_WRITE); }
  bool Holds(const void* address) const {
    return address >= begin_ && address < static_cast<const std::byte*>(begin_) + bytes_;
  }
  template <typename T>
  T* As() {
    return static_cast<T*>(begin_);
  }

 private:
  std::size_t bytes_;
  void* begin_;
};

// For the handler of SIGSEGV.
Page* keys_page;
Page* gradients_page;
float changed_to;

// After the check of the gradients the store reads the keys again, to find each row. The handler changes the gradient
// then.
void OnAccess(int, siginfo_t* info, void*) {
  if (gradients_page->Holds(info->si_addr)) {
    gradients_page->Open();
    keys_page->Close();
  } else if (keys_page->Holds(info->si_addr)) {
    keys_page->Open();
    *gradients_page->As<float>() = changed_to;
  } else {
    ::signal(SIGSEGV, SIG_DFL);
  }
}

class RowStepperTest : public testing::Test {
 protected:
  RowStepperTest() {
    keys_page = &keys_;
    gradients_page = &gradients_;
    struct sigaction action{};
    action.sa_sigaction = OnAccess;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~RowStepperTest() override { ::sigaction(SIGSEGV, &before_, nullptr); }

  Page keys_, gradients_;
  struct sigaction before_;
};

TEST_F(RowStepperTest, AGradientThatChangesAfterItsCheckHasNoEffect) {
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "dense";
  spec.kind = TableKind::kDense;
  spec.dim = 1;
  spec.rows = 8;
  spec.initializer = {InitializerKind::kZero, 0, 0};
  spec.optimizer.kind = "sgd";
  spec.optimizer.learning_rate = 1;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 7.0f}) {
    Store rows({.job_seed = 1, .partition_bits = 0, .owned = {PartitionId(0)}});
    ASSERT_TRUE(rows.AddTable(spec));
    *keys_.As<Key>() = 3;
    *gradients_.As<float>() = 2;
    changed_to = bad;
    const Section section{PartitionId(0), 1, Sequence(1)};
    gradients_.Close();
    rows.Apply(spec.id, {&section, 1}, {keys_.As<Key>(), 1}, ValueCodec::kFp32, gradients_.As<std::byte>(), Clock(0));
    const float now = *gradients_.As<float>();
    EXPECT_EQ(std::isnan(now), std::isnan(bad)) << "it has changed while it was applied";
    if (!std::isnan(bad)) {
      EXPECT_EQ(now, bad);
    }
    EXPECT_EQ(rows.Values(spec.id, 3), std::vector<float>{-2});
    EXPECT_EQ(rows.counters().not_finite, 0u);
  }
}

}  // namespace
}  // namespace tarn::server
