// What a caller's thread waits for and the I/O thread delivers: one shared state a request. Internal to worker/; the
// public faces are RowsFuture and StatusFuture of worker/tarn.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/message.h"
#include "worker/client/client_driver.h"
#include "worker/client/plan.h"

namespace tarn::worker {

// For waits: "for ever" is more than a clock's nanoseconds can count, and no number is no time.
inline std::chrono::duration<double> WaitTime(double seconds) {
  constexpr double kSecondsMax = 1e9;
  return std::chrono::duration<double>(seconds > 0 ? std::min(seconds, kSecondsMax) : 0.0);
}

struct ClientResult {
  // Written by the I/O thread before Finish, read by callers after Wait.
  Buffer rows;  // fp32, one row per unique key
  std::uint64_t staleness = 0;
  TableSpec table;
  LeaseReply leases;
  // Set before the request is posted. Who takes turns while a caller waits; null: another thread does.
  std::shared_ptr<ClientDriver> driver;
  // Set with `driver`: whoever asked waits for the answer before long.
  bool awaited = false;
  // Set before the request is posted: the pull counts so many bytes there until it is finished.
  std::shared_ptr<std::atomic<std::size_t>> asked;
  std::size_t asked_bytes = 0;
  // Set by the caller before the request is posted: the rows are wanted one per occurrence of a key.
  std::shared_ptr<const Plan> expand_by;

  ClientResult() = default;
  ~ClientResult() {
    if (unread_) driver->OnForgotten();
  }
  ClientResult(const ClientResult&) = delete;
  ClientResult& operator=(const ClientResult&) = delete;

  // Once; later calls change nothing. `error.code` kOk: it worked.
  void Finish(Error error) {
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      error_ = std::move(error);
      done_ = true;
      if (asked != nullptr) asked->fetch_sub(asked_bytes);
      unread_ = awaited && driver != nullptr;
      if (unread_) driver->OnAnswered();
    }
    changed_.notify_all();
  }

  bool Ready() const {
    const std::lock_guard lock(mutex_);
    return done_;
  }

  Status Wait() {
    if (driver != nullptr && !Ready()) driver->Help([this] { return Ready(); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return Read(std::move(lock));
  }

  // kTimeout after `seconds`; one may wait again.
  Status WaitFor(double seconds) {
    using std::chrono::steady_clock;
    const auto wait = std::chrono::ceil<std::chrono::microseconds>(WaitTime(seconds));
    const auto deadline = steady_clock::now() + wait;
    if (driver != nullptr && !Ready()) driver->Help([this] { return Ready(); }, wait.count());
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return done_; })) return Fail(ErrorCode::kTimeout, "no answer yet");
    return Read(std::move(lock));
  }

  // The rows as the caller wants them. After a successful Wait; any thread.
  std::span<const float> Rows() {
    if (expand_by == nullptr) return static_cast<const Buffer&>(rows).as<float>();
    const std::lock_guard lock(mutex_);
    if (expanded_.empty()) {
      expanded_ = Buffer::Allocate(expand_by->index.size() * expand_by->dim * sizeof(float));
      Expand(*expand_by, expand_by->dim, std::as_const(rows).as<float>().data(), expanded_.as_mutable<float>().data());
    }
    return std::as_const(expanded_).as<float>();
  }

 private:
  Status Read(std::unique_lock<std::mutex> lock) {
    const bool first = std::exchange(unread_, false);
    lock.unlock();
    if (first) driver->OnRead();
    return Outcome();
  }

  // Of one that is done.
  Status Outcome() const {
    if (error_.code == ErrorCode::kOk) return {};
    return std::unexpected(error_);
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  bool unread_ = false;  // and OnAnswered was told
  Error error_{ErrorCode::kOk, ""};
  Buffer expanded_;
};

}  // namespace tarn::worker
