// Who takes the turns of a client's runtime: its own thread, or a caller that waits for an answer and has nothing else
// to do. A caller that takes the turns itself gets its answer without a switch of threads, which costs more than the
// answer. Internal to worker/.
//
// The runtime's thread gives way to a single caller that waits, and resumes once nobody has taken a turn for kRestUs.
// While several callers wait at the same time, the thread takes the turns.
//
// What a caller posts while it has answers that it has not read is left for the turn that it takes after reading them,
// with all that it posts until then, up to kLeftMax requests: these travel together, and are answered together. (With
// many more, the server would be idle meanwhile.)
//
// Threads: any. Futures that outlive the client hold the driver; Close detaches it from the loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

#include "core/types.h"

namespace tarn::worker {

class ClientDriver {
 public:
  static constexpr int kLeftMax = 8;
  static constexpr TimeUs kForEver = std::numeric_limits<TimeUs>::max();
  // Half a turn each: Act carries out what was posted and sends, Exchange waits for messages and takes them in. Both
  // are called by one thread at a time.
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

  // The loop's thread: takes turns until the loop is over.
  void Run() {
    while (TakeTurn()) Rest();
  }

  // A caller's thread: takes turns until done(), for as long at most, or until others should; true: it is done. With no
  // time it takes a turn all the same, which delivers what has come.
  template <typename Done>
  bool Help(Done done, TimeUs at_most = kForEver) {
    const bool alone = callers_.fetch_add(1) == 0;
    if (!alone) Crowd();
    if (alone && !IsCrowded()) TakeTurns(done, at_most);
    callers_.fetch_sub(1);
    return done();
  }

  // A caller that has posted something: acts at once or, if it may wait, perhaps leaves it to a turn that is soon
  // taken. False: somebody takes a turn just now.
  bool TryAct(bool may_wait = false) {
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn) return false;
    // A loop's thread that rests looks after rest_us_ at the latest, whatever the caller does.
    left_ = may_wait && left_ < kLeftMax && unread_.load() > 0 && rests_.load() && !IsCrowded() ? left_ + 1 : 0;
    return left_ != 0 || over_ || Act();
  }

  // A caller has an answer that it is expected to read soon; has read it; will never read it. The second is not called
  // within a turn.
  void OnAnswered() { unread_.fetch_add(1); }
  void OnRead() {
    if (unread_.fetch_sub(1) == 1 && left_.load() != 0) TryAct();
  }
  void OnForgotten() { unread_.fetch_sub(1); }

  // Whether the loop's thread has given way.
  bool rests() const { return rests_.load(); }

  // No turn is taken any more when it returns. The loop's thread has ended.
  void Close() {
    const std::scoped_lock both(turn_, waking_);
    over_ = true;
    loop_ = nullptr;
  }
  // Makes the loop's thread, if it rests, take its turn.
  void Disturb() {
    {
      const std::lock_guard lock(resting_);
      disturbed_ = true;
    }
    rest_.notify_all();
  }

 private:
  static constexpr TimeUs kRestUs = 1'000;
  static constexpr TimeUs kCrowdUs = 10'000;  // that callers were several is remembered for so long

  static TimeUs Now() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }

  // With turn_ held.
  bool Act() {
    left_ = 0;
    over_ = over_ || !loop_->Act();
    return !over_;
  }

  bool TakeTurn() {
    const std::lock_guard turn(turn_);
    if (over_ || !Act()) return false;
    if (!GivesWay()) loop_->Exchange(kForEver);
    return true;
  }

  template <typename Done>
  void TakeTurns(Done done, TimeUs at_most) {
    const TimeUs begin = at_most == kForEver ? 0 : Now();
    std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn) {
      // The wake-up alone may be lost: another's may be taken for both, and the loop's thread lock again before us.
      wanted_ = true;
      Wake();
      turn.lock();
      wanted_ = false;
    }
    // Without time left too: while callers take turns, the loop's thread looks for no messages.
    TimeUs left = at_most;
    for (bool last = false; !over_ && Act() && !done() && !IsCrowded() && !last;) {
      last = left <= 0;
      loop_->Exchange(std::max<TimeUs>(left, 0));
      if (at_most != kForEver) left = begin + at_most - Now();
    }
    helped_at_.store(Now(), std::memory_order_relaxed);
    if (IsCrowded()) Disturb();
  }

  bool GivesWay() const { return wanted_.load() || (callers_.load() == 1 && !IsCrowded()); }

  void Rest() {
    std::unique_lock lock(resting_);
    rests_ = true;
    while (!disturbed_ && (GivesWay() || (!IsCrowded() && WasHelped())))
      rest_.wait_for(lock, std::chrono::microseconds(rest_us_));
    rests_ = false;
    disturbed_ = false;
  }

  bool WasHelped() const { return Now() - helped_at_.load(std::memory_order_relaxed) < rest_us_; }
  bool IsCrowded() const {
    const TimeUs until = crowded_until_.load(std::memory_order_relaxed);
    return until != 0 && Now() < until;
  }
  void Crowd() {
    crowded_until_.store(Now() + kCrowdUs, std::memory_order_relaxed);
    Wake();  // whoever takes a turn
    Disturb();
  }
  void Wake() {
    const std::lock_guard lock(waking_);
    if (loop_ != nullptr) loop_->Wake();
  }

  std::mutex turn_;    // held by whoever takes a turn
  std::mutex waking_;  // held around Loop::Wake
  Loop* loop_;
  const TimeUs rest_us_;
  bool over_ = false;
  std::atomic<int> callers_{0};
  std::atomic<bool> wanted_{false};  // turn_, by a caller
  std::atomic<TimeUs> helped_at_{0};
  std::atomic<TimeUs> crowded_until_{0};
  std::atomic<int> unread_{0};      // answers
  std::atomic<bool> rests_{false};  // the loop's thread
  std::atomic<int> left_{0};        // posted since the last turn, and left to the next

  std::mutex resting_;
  std::condition_variable rest_;
  bool disturbed_ = false;
};

}  // namespace tarn::worker
