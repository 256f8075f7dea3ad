#include "bench/scale_model/machine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace tarn::scale {
namespace {

// A piece with less than this left is done, because events are at whole nanoseconds.
constexpr double kDoneNs = 0.5;

}  // namespace

void Thread::Run(double ns, std::function<void()> done) {
  if (host_->cores_ == 0) {
    const double at = Reserve(static_cast<double>(host_->events_->now()), ns);
    host_->events_->At(std::llround(at), std::move(done));
    return;
  }
  busy_ns_ += ns;
  pieces_.push_back({ns, std::move(done)});
  if (pieces_.size() == 1) host_->Start(this);
}

double Thread::Reserve(double at, double ns) {
  TARN_CHECK(host_->cores_ == 0, "the end of work on shared cores is not known in advance");
  busy_ns_ += ns;
  return free_at_ns_ = std::max(free_at_ns_, at) + ns;
}

double Host::Rate() const {
  const double n = static_cast<double>(running_.size());
  return std::min(1.0, cores_ / n) / (n > 1 ? slowdown_ : 1.0);
}

void Host::Start(Thread* thread) {
  Advance();
  running_.push_back(thread);
  Arm();
}

void Host::Advance() {
  const double now = static_cast<double>(events_->now());
  if (!running_.empty()) {
    const double done = (now - last_ns_) * Rate();
    for (Thread* thread : running_) thread->pieces_.front().left_ns -= done;
  }
  last_ns_ = now;
}

void Host::Arm() {
  const std::uint64_t version = ++version_;
  if (running_.empty()) return;
  double least = running_.front()->pieces_.front().left_ns;
  for (const Thread* thread : running_) least = std::min(least, thread->pieces_.front().left_ns);
  const double wait = std::max(0.0, std::ceil(least / Rate()));
  events_->At(events_->now() + static_cast<Ns>(wait), [this, version] { Finish(version); });
}

void Host::Finish(std::uint64_t version) {
  if (version != version_) return;
  Advance();
  std::vector<std::function<void()>> done;
  for (auto it = running_.begin(); it != running_.end();) {
    Thread& thread = **it;
    if (thread.pieces_.front().left_ns > kDoneNs) {
      ++it;
      continue;
    }
    done.push_back(std::move(thread.pieces_.front().done));
    thread.pieces_.pop_front();
    it = thread.pieces_.empty() ? running_.erase(it) : std::next(it);
  }
  Arm();
  for (auto& call : done) call();
}

}  // namespace tarn::scale
