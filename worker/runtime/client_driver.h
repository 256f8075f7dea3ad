// Decides which thread executes the turns of a client's runtime: its own thread, or a caller that waits for an answer.
// A caller that executes the turns itself gets its answer without a thread switch, which would take longer than the
// answer. Internal to worker/.
//
// The runtime's thread pauses while a single caller waits, and resumes when no caller has executed a turn for kRestUs.
// While several callers wait, the thread executes the turns.
//
// While a caller has unread answers, up to kLeftMax of its requests are batched until the turn after it has read them,
// and are sent and answered together. (With many more, the server would be idle meanwhile.)
//
// Threads: any. Futures that outlive the client hold the driver; Close detaches it from the loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

#include "core/types.h"
#include "worker/runtime/thread_pause.h"
#include "worker/runtime/waiting_callers.h"

namespace tarn::worker {

class ClientDriver {
 public:
  static constexpr int kLeftMax = 8;
  static constexpr TimeUs kForEver = std::numeric_limits<TimeUs>::max();
  // The two halves of a turn: Act executes the posted requests and sends, Exchange waits for messages and handles them.
  // One thread at a time calls them.
  class Loop {
   public:
    virtual bool Act() = 0;  // false: the loop is over
    virtual void Exchange(TimeUs at_most) = 0;
    virtual void Wake() = 0;  // ends the wait of Exchange; any thread

   protected:
    ~Loop() = default;
  };
  // The loop exists until Close returns. rest_us: for tests.
  explicit ClientDriver(Loop* loop, TimeUs rest_us = kRestUs) : loop_(loop), rest_us_(rest_us) {}

  // For the loop's thread: executes turns until the loop ends.
  void Run() {
    while (TakeTurn()) Rest();
  }

  // For a caller's thread: executes turns until done(), until the time is over, or until another thread should
  // continue; returns done(). Executes at least one turn, which delivers received messages.
  template <typename Done>
  bool Help(Done done, TimeUs at_most = kForEver) {
    if (!callers_.Enter()) {
      Wake();  // wakes the thread that executes a turn
      Disturb();
    } else if (!callers_.crowded()) {
      TakeTurns(done, at_most);
    }
    callers_.Leave();
    return done();
  }

  // For a caller that has posted a request: acts at once or, if the request may wait, leaves it to the next turn.
  // False: another thread is executing a turn, or the loop has just ended.
  bool TryAct(bool may_wait = false) {
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn) return false;
    // If the caller does nothing more, the paused loop thread resumes within 2 * rest_us_ and sends these requests.
    left_ = may_wait && left_ < kLeftMax && unread_.load() > 0 && rest_.paused() && !callers_.crowded() ? left_ + 1 : 0;
    return left_ != 0 || over_ || Act();
  }

  // Call OnAnswered when an answer arrives that a caller will read; then OnRead when the caller has read it, outside of
  // turns, or OnForgotten when nobody can read it any more.
  void OnAnswered() { unread_.fetch_add(1); }
  void OnRead() {
    if (unread_.fetch_sub(1) == 1 && left_.load() != 0) TryAct();
  }
  void OnForgotten() { unread_.fetch_sub(1); }

  // Whether the loop's thread is paused.
  bool rests() const { return rest_.paused(); }

  // After it returns, no turn is executed. Requires that the loop's thread has ended.
  void Close() {
    const std::scoped_lock both(turn_, waking_);
    over_ = true;
    loop_ = nullptr;
  }
  // Wakes the loop's thread if it is paused.
  void Disturb() { rest_.Interrupt(); }

 private:
  static constexpr TimeUs kRestUs = 1'000;

  static TimeUs Now() { return WaitingCallers::Now(); }

  // With turn_ held.
  bool Act() {
    left_ = 0;
    over_ = over_ || !loop_->Act();
    return !over_;
  }

  bool TakeTurn() {
    const std::lock_guard turn(turn_);
    if (over_ || !Act()) return false;
    if (!YieldsToCaller()) loop_->Exchange(kForEver);
    return true;
  }

  template <typename Done>
  void TakeTurns(Done done, TimeUs at_most) {
    const TimeUs begin = at_most == kForEver ? 0 : Now();
    std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn) {
      // Wake alone is not enough: it may be merged with another wake-up, and the loop's thread may lock turn_ again
      // before this thread does.
      wanted_ = true;
      Wake();
      turn.lock();
      wanted_ = false;
    }
    // Executes one turn even without time left: while callers execute turns, the loop's thread receives no messages.
    TimeUs left = at_most;
    for (bool last = false; !over_ && Act() && !done() && !callers_.crowded() && !last;) {
      last = left <= 0;
      loop_->Exchange(std::max<TimeUs>(left, 0));
      if (at_most != kForEver) left = begin + at_most - Now();
    }
    helped_at_.store(Now(), std::memory_order_relaxed);
    if (callers_.crowded()) Disturb();
  }

  bool YieldsToCaller() const { return wanted_.load() || callers_.single(); }

  void Rest() {
    rest_.While([this] { return YieldsToCaller() || (!callers_.crowded() && WasHelped()); }, rest_us_);
  }

  bool WasHelped() const { return Now() - helped_at_.load(std::memory_order_relaxed) < rest_us_; }
  void Wake() {
    const std::lock_guard lock(waking_);
    if (loop_ != nullptr) loop_->Wake();
  }

  std::mutex turn_;    // held during a turn
  std::mutex waking_;  // held around Loop::Wake
  Loop* loop_;
  const TimeUs rest_us_;
  bool over_ = false;
  WaitingCallers callers_;
  std::atomic<bool> wanted_{false};   // a caller waits for turn_
  std::atomic<TimeUs> helped_at_{0};  // when a caller last executed a turn
  std::atomic<int> unread_{0};        // answers that callers have not read
  std::atomic<int> left_{0};          // requests posted since the last turn that wait for the next
  ThreadPause rest_;                  // of the loop's thread
};

}  // namespace tarn::worker
