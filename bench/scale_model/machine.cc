#include "bench/scale_model/machine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace tarn::scale {
namespace {

// A piece with less than this left is done, because events are at whole nanoseconds.
constexpr double kDoneNs = 0.5;
// How long a thread keeps its core while others wait. Linux ends time slices at the ticks of its timer, every 4 ms with
// CONFIG_HZ=250.
constexpr double kSliceNs = 4e6;

}  // namespace

Thread::Thread(Host* host, unsigned core) : host_(host), core_(core) {
  TARN_CHECK(host->cores_ == 0 || core < host->cores_, "a thread on a core that the host does not have");
}

void Thread::Run(double ns, std::function<void()> done) {
  if (host_->cores_ == 0) {
    const double at = Reserve(static_cast<double>(host_->events_->now()), ns);
    host_->events_->At(std::llround(at), std::move(done));
    return;
  }
  busy_ns_ += ns;
  pieces_.push_back({ns, std::move(done)});
  if (!runnable_) host_->Start(this);
}

double Thread::Reserve(double at, double ns) {
  TARN_CHECK(host_->cores_ == 0, "the end of work on shared cores is not known in advance");
  busy_ns_ += ns;
  return free_at_ns_ = std::max(free_at_ns_, at) + ns;
}

std::vector<Thread*> Host::Running() const {
  std::vector<Thread*> running;
  for (Thread* thread : runnable_)
    if (std::ranges::find(running, thread->core_, &Thread::core_) == running.end()) running.push_back(thread);
  return running;
}

void Host::Start(Thread* thread) {
  Advance();
  thread->runnable_ = true;
  thread->slice_ns_ = kSliceNs;
  runnable_.push_back(thread);
  Arm();
}

void Host::Advance() {
  const double now = static_cast<double>(events_->now());
  const auto running = Running();
  for (Thread* thread : running) {
    thread->pieces_.front().left_ns -= (now - last_ns_) / Slowdown(running.size());
    thread->slice_ns_ -= now - last_ns_;
  }
  last_ns_ = now;
}

void Host::Arm() {
  const std::uint64_t version = ++version_;
  const auto running = Running();
  if (running.empty()) return;
  double wait = kSliceNs;
  for (const Thread* thread : running)
    wait = std::min({wait, thread->pieces_.front().left_ns * Slowdown(running.size()), thread->slice_ns_});
  wait = std::max(0.0, std::ceil(wait));
  events_->At(events_->now() + static_cast<Ns>(wait), [this, version] { Finish(version); });
}

// A thread that gets more work from `done` does not sleep in between, so it keeps its core.
void Host::Finish(std::uint64_t version) {
  if (version != version_) return;
  Advance();
  for (Thread* thread : Running()) {
    if (thread->pieces_.front().left_ns <= kDoneNs) {
      thread->pieces_.front().done();
      thread->pieces_.pop_front();
    }
    const auto at = std::ranges::find(runnable_, thread);
    thread->runnable_ = !thread->pieces_.empty();
    if (!thread->runnable_) {
      runnable_.erase(at);
    } else if (thread->slice_ns_ <= kDoneNs) {
      thread->slice_ns_ = kSliceNs;
      std::rotate(at, at + 1, runnable_.end());
    }
  }
  Arm();
}

}  // namespace tarn::scale
