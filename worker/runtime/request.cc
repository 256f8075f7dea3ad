#include "worker/runtime/request.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace tarn::worker {
namespace {

// Bounds the time: infinity exceeds the nanoseconds of a clock, and NaN is not a time.
std::chrono::microseconds WaitTime(double seconds) {
  constexpr double kSecondsMax = 1e9;
  const std::chrono::duration<double> time(seconds > 0 ? std::min(seconds, kSecondsMax) : 0.0);
  return std::chrono::ceil<std::chrono::microseconds>(time);
}

}  // namespace

Request::~Request() {
  if (unread_) driver_->OnForgotten();
}

void Request::Finish(Error error) {
  std::shared_ptr<Request> self;  // destroyed last
  {
    const std::lock_guard lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
    if (budget_ != nullptr) budget_->Return(bytes_);
    unread_ = awaited_ && driver_ != nullptr;
    if (unread_) driver_->OnAnswered();
    self = std::move(self_);
  }
  changed_.notify_all();
}

Status Request::Wait() {
  if (driver_ != nullptr && !Ready()) driver_->Help([this] { return Ready(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return Ready(); });
  return Read(std::move(lock));
}

Status Request::WaitFor(double seconds) {
  const auto wait = WaitTime(seconds);
  const auto deadline = std::chrono::steady_clock::now() + wait;
  if (driver_ != nullptr && !Ready()) driver_->Help([this] { return Ready(); }, wait.count());
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [this] { return Ready(); }))
    return Fail(ErrorCode::kTimeout, "no answer within " + std::to_string(seconds) +
                                         " s; the request continues and can be waited for again");
  return Read(std::move(lock));
}

Status Request::Read(std::unique_lock<std::mutex> lock) {
  read_ = true;
  const bool first = std::exchange(unread_, false);
  lock.unlock();
  if (first) driver_->OnRead();
  if (error_.code == ErrorCode::kOk) return {};
  return std::unexpected(error_);
}

}  // namespace tarn::worker
