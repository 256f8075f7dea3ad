// Shows that one thread at a time executes turns: a caller if it is the only one that waits, otherwise the loop's
// thread; and that every waiting caller gets its answer.
#include "worker/runtime/client_driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/hash.h"

namespace tarn::worker {
namespace {

// Answers each request one turn later, and records which threads executed turns.
class EchoLoop final : private ClientDriver::Loop {
 public:
  explicit EchoLoop(TimeUs rest_us = 1'000) : driver_(this, rest_us), thread_([this] { driver_.Run(); }) {}
  ~EchoLoop() {
    Stop();
    thread_.join();
    driver_.Close();
  }
  void Stop() {
    stop_ = true;
    Wake();
    driver_.Disturb();
  }
  // Sends a request and waits. Returns whether it was answered before the loop ended.
  bool Ask() {
    const std::uint64_t mine = ++asked_;
    if (!driver_.TryAct()) Wake();
    const auto done = [&] { return answered_ >= mine || over_; };
    if (!driver_.Help(done)) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, done);
    }
    return answered_ >= mine;
  }

  // Sends a request and does not wait.
  void Post() {
    ++asked_;
    if (!driver_.TryAct(true)) Wake();
  }
  // Returns whether all requests are answered. Does not wait.
  bool Look() {
    return driver_.Help([&] { return answered_ == asked_; }, 0);
  }
  ClientDriver& driver() { return driver_; }
  int acts() const { return acts_; }

  std::set<std::thread::id> turns_of() {
    const std::lock_guard lock(mutex_);
    return turns_of_;
  }
  void ForgetTurns() {
    const std::lock_guard lock(mutex_);
    turns_of_.clear();
  }
  std::thread::id thread() const { return thread_.get_id(); }

 private:
  bool Act() override {
    EXPECT_FALSE(busy_.exchange(true)) << "two threads take turns at once";
    ++acts_;
    const std::lock_guard lock(mutex_);
    turns_of_.insert(std::this_thread::get_id());
    answered_ = read_.load();
    over_ = over_ || stop_;
    changed_.notify_all();
    busy_ = false;
    return !over_;
  }
  void Exchange(TimeUs) override {
    EXPECT_FALSE(busy_.exchange(true)) << "two threads take turns at once";
    if (read_ < asked_) {
      read_ = asked_.load();  // the answer arrives
    } else {
      std::unique_lock lock(mutex_);
      woken_changed_.wait(lock, [&] { return woken_; });
      woken_ = false;
    }
    busy_ = false;
  }
  void Wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    woken_changed_.notify_all();
  }

  std::atomic<std::uint64_t> asked_{0}, read_{0}, answered_{0};
  std::atomic<int> acts_{0};
  std::atomic<bool> stop_{false}, over_{false}, busy_{false};
  std::mutex mutex_;
  std::condition_variable changed_, woken_changed_;
  bool woken_ = false;
  std::set<std::thread::id> turns_of_;
  ClientDriver driver_;
  std::thread thread_;
};

// Not on the stack: ThreadSanitizer would take mutexes of two tests at the same address for one mutex.
std::unique_ptr<EchoLoop> MakeLoop(TimeUs rest_us = 1'000) { return std::make_unique<EchoLoop>(rest_us); }

TEST(ClientDriverTest, ASingleCallerExecutesTheTurns) {
  const auto kept = MakeLoop();
  EchoLoop& loop = *kept;
  EXPECT_TRUE(loop.Ask());
  loop.ForgetTurns();
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(loop.Ask());
  EXPECT_TRUE(loop.turns_of().contains(std::this_thread::get_id()));
}

TEST(ClientDriverTest, EachOfManyCallersGetsItsAnswer) {
  const auto kept = MakeLoop();
  EchoLoop& loop = *kept;
  std::vector<std::thread> callers;
  callers.reserve(4);
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 2'000; ++i) ASSERT_TRUE(loop.Ask());
    });
  for (std::thread& caller : callers) caller.join();
}

// The caller does not wait; the loop's thread must execute its requests.
TEST(ClientDriverTest, TheLoopsThreadResumes) {
  const auto kept = MakeLoop();
  EchoLoop& loop = *kept;
  for (int i = 0; i < 5; ++i) {
    for (int k = 0; k < 20; ++k) ASSERT_TRUE(loop.Ask());
    loop.ForgetTurns();
    while (!loop.turns_of().contains(loop.thread())) std::this_thread::yield();
  }
}

constexpr TimeUs kForEverUs = 1'000'000'000;

// Waits until the loop's thread pauses for callers.
void LetRest(EchoLoop* loop) {
  do {
    ASSERT_TRUE(loop->Ask());
  } while (!loop->driver().rests());
}

TEST(ClientDriverTest, RequestsPostedBeforeAnswersAreReadAreBatched) {
  const auto kept = MakeLoop(kForEverUs);
  EchoLoop& loop = *kept;
  LetRest(&loop);
  for (int i = 0; i < 3; ++i) loop.driver().OnAnswered();
  const int before = loop.acts();
  loop.Post();
  loop.driver().OnRead();
  loop.Post();
  loop.driver().OnRead();
  EXPECT_EQ(loop.acts(), before);
  loop.driver().OnRead();
  EXPECT_EQ(loop.acts(), before + 1);
  loop.Post();
  EXPECT_EQ(loop.acts(), before + 2);  // no answer is unread: executed at once
}

TEST(ClientDriverTest, ManyPostsDoNotWaitForEachOther) {
  const auto kept = MakeLoop(kForEverUs);
  EchoLoop& loop = *kept;
  LetRest(&loop);
  loop.driver().OnAnswered();
  const int before = loop.acts();
  for (int i = 0; i < ClientDriver::kLeftMax; ++i) loop.Post();
  EXPECT_EQ(loop.acts(), before);
  loop.Post();
  EXPECT_EQ(loop.acts(), before + 1);
}

TEST(ClientDriverTest, AWaitingCallerExecutesPostedRequests) {
  const auto kept = MakeLoop(kForEverUs);
  EchoLoop& loop = *kept;
  LetRest(&loop);
  loop.driver().OnAnswered();
  for (int i = 0; i < 100; ++i) {
    const int before = loop.acts();
    loop.Post();
    EXPECT_EQ(loop.acts(), before);
    ASSERT_TRUE(loop.Ask());
  }
}

TEST(ClientDriverTest, TheLoopsThreadExecutesPostedRequests) {
  const auto kept = MakeLoop();
  EchoLoop& loop = *kept;
  for (int i = 0; i < 5; ++i) {
    LetRest(&loop);
    loop.driver().OnAnswered();
    const int before = loop.acts();
    loop.Post();
    while (loop.acts() == before) std::this_thread::yield();
    loop.driver().OnForgotten();
  }
  EXPECT_TRUE(loop.Ask());
}

// A caller that polls for its answer keeps the loop's thread paused, so the caller must execute the turns itself.
TEST(ClientDriverTest, ACallerThatPollsGetsItsAnswer) {
  const auto kept = MakeLoop(kForEverUs);
  EchoLoop& loop = *kept;
  LetRest(&loop);
  for (int i = 0; i < 100; ++i) {
    loop.Post();
    ASSERT_TRUE(loop.Look());
  }
}

// A loop whose Exchange returns once it was woken and `released` is set.
class HeldLoop final : public ClientDriver::Loop {
 public:
  bool Act() override {
    const std::lock_guard lock(mutex_);
    return !stop_;
  }
  void Exchange(TimeUs) override {
    std::unique_lock lock(mutex_);
    ++exchanges_;
    changed_.notify_all();
    waited_out_ |= !changed_.wait_for(lock, std::chrono::seconds(5), [&] { return wakes_ > 0 && released_; });
    wakes_ = 0;
  }
  void Wake() override {
    const std::lock_guard lock(mutex_);
    ++wakes_;
    changed_.notify_all();
  }
  void WaitForExchange() {
    WaitUntil([this] { return exchanges_ == 1; });
  }
  void WaitForWake() {
    WaitUntil([this] { return wakes_ == 1; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    Wake();
  }
  bool waited_out() {
    const std::lock_guard lock(mutex_);
    return waited_out_;
  }

 private:
  template <typename Condition>
  void WaitUntil(Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int wakes_ = 0, exchanges_ = 0;
  bool released_ = false, waited_out_ = false, stop_ = false;
};

// Several callers wait, and their wake-ups may be merged into one.
TEST(ClientDriverTest, EachCallerThatWaitsForATurnGetsOne) {
  const auto loop = std::make_unique<HeldLoop>();
  const auto kept = std::make_unique<ClientDriver>(loop.get());
  ClientDriver& driver = *kept;
  std::thread thread([&] { driver.Run(); });
  loop->WaitForExchange();
  std::thread caller([&] { driver.Help([] { return true; }); });
  loop->WaitForWake();
  driver.Help([] { return true; });
  loop->Release();
  caller.join();
  EXPECT_FALSE(loop->waited_out());
  loop->Stop();
  driver.Disturb();
  thread.join();
  driver.Close();
}

TEST(ClientDriverTest, TheEndWakesAllCallers) {
  for (int round = 0; round < 20; ++round) {
    const auto kept = MakeLoop();
    EchoLoop& loop = *kept;
    std::vector<std::thread> callers;
    callers.reserve(3);
    for (int t = 0; t < 1 + round % 3; ++t)
      callers.emplace_back([&] {
        while (loop.Ask()) {
        }
      });
    SplitMix random(std::uint64_t(round) + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random.Next() % 3'000));
    loop.Stop();
    for (std::thread& caller : callers) caller.join();
    EXPECT_FALSE(loop.Ask());
  }
}

}  // namespace
}  // namespace tarn::worker
