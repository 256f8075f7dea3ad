// Shows what happens to a program's signals: the handler is called for each, on the context's thread. Before a handler
// is set a signal ends the process, and after the end of the context signals are ignored.
#include "core/process_context.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdlib>
#include <semaphore>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tarn {
namespace {

// Restores the signal mask of this thread, in which a context blocks signals, for other tests.
class ProcessContextTest : public testing::Test {
 protected:
  ProcessContextTest() { pthread_sigmask(SIG_SETMASK, nullptr, &before_); }
  ~ProcessContextTest() override {
    ::signal(SIGUSR1, SIG_IGN);  // drops pending signals
    ::signal(SIGUSR2, SIG_IGN);
    ::signal(SIGUSR1, SIG_DFL);
    ::signal(SIGUSR2, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  sigset_t before_;
};

TEST_F(ProcessContextTest, EachSignalReachesTheHandlerOnTheContextsThread) {
  const auto process = ProcessContext::Start({SIGUSR1, SIGUSR2});
  ASSERT_TRUE(process);
  std::counting_semaphore<> arrived(0);
  std::vector<int> signals;
  std::thread::id thread;
  (*process)->OnSignal([&](int signal) {
    signals.push_back(signal);
    thread = std::this_thread::get_id();
    arrived.release();
  });
  for (const int signal : {SIGUSR1, SIGUSR2, SIGUSR1}) {
    ASSERT_EQ(::kill(::getpid(), signal), 0);
    arrived.acquire();
  }
  EXPECT_EQ(signals, (std::vector<int>{SIGUSR1, SIGUSR2, SIGUSR1}));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(ProcessContextTest, SignalsArriveAfterAHandlerHasThrown) {
  const auto process = ProcessContext::Start({SIGUSR1});
  ASSERT_TRUE(process);
  std::counting_semaphore<> arrived(0);
  (*process)->OnSignal([&](int) {
    arrived.release();
    throw std::runtime_error("from a handler");
  });
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
    arrived.acquire();
  }
}

TEST_F(ProcessContextTest, AnotherHandlerReplacesTheFirst) {
  const auto process = ProcessContext::Start({SIGUSR1});
  ASSERT_TRUE(process);
  std::binary_semaphore arrived(0);
  std::atomic<bool> replaced = false;
  (*process)->OnSignal([&](int) { replaced = true; });
  (*process)->OnSignal([&](int) { arrived.release(); });
  ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
  arrived.acquire();
  EXPECT_FALSE(replaced);
}

TEST_F(ProcessContextTest, RunsPostedFunctions) {
  const auto process = ProcessContext::Start({});
  ASSERT_TRUE(process);
  std::binary_semaphore done(0);
  boost::asio::post((*process)->io(), [&] { done.release(); });
  done.acquire();
}

TEST_F(ProcessContextTest, SignalsAreIgnoredOnceItIsDestroyed) {
  {
    const auto process = ProcessContext::Start({SIGUSR1});
    ASSERT_TRUE(process);
  }
  ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
  sigset_t pending;
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGUSR1), 1) << "nobody takes it";
}

using ProcessContextDeathTest = ProcessContextTest;

TEST_F(ProcessContextDeathTest, WithoutAHandlerASignalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto process = ProcessContext::Start({SIGUSR1});
        ::kill(::getpid(), SIGUSR1);
        for (;;) ::pause();
      },
      testing::KilledBySignal(SIGUSR1), "");
}

}  // namespace
}  // namespace tarn
