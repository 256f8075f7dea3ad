#include "core/disk_pool.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tarn {

namespace asio = boost::asio;

namespace {

void SetThreadName(const std::string& name) { pthread_setname_np(::pthread_self(), name.c_str()); }

// Threads that run the jobs posted to their context. The destructor waits for all posted jobs.
struct Threads {
  explicit Threads(unsigned count) {
    for (unsigned i = 0; i < count; ++i) threads.emplace_back([this] { context.run(); });
  }

  asio::io_context context;
  std::vector<std::jthread> threads;
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(context);  // destroyed first
};

}  // namespace

struct DiskPool::Impl {
  std::unique_ptr<Threads> TakeThread() {
    const std::lock_guard lock(mutex);
    if (!idle.empty()) {
      auto thread = std::move(idle.back());
      idle.pop_back();
      return thread;
    }
    idle.reserve(started + 1);
    auto thread = std::make_unique<Threads>(1);
    ++started;
    return thread;
  }
  void ReturnThread(std::unique_ptr<Threads> thread) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(thread));  // the capacity is reserved
  }

  std::string name;
  std::optional<Threads> shared;               // for Post
  std::mutex mutex;                            // protects the next two
  std::vector<std::unique_ptr<Threads>> idle;  // threads of destroyed strands, for reuse
  std::size_t started = 0;                     // threads started for strands so far
};

DiskPool::DiskPool() : impl_(std::make_unique<Impl>()) {}
DiskPool::DiskPool(std::string name, unsigned threads) : DiskPool() {
  impl_->name = std::move(name);
  impl_->shared.emplace(threads);
}
DiskPool::~DiskPool() = default;

void DiskPool::Post(Job job) {
  TARN_CHECK(impl_->shared.has_value(), "the pool has threads for Post");
  asio::post(impl_->shared->context, [this, job = std::move(job)]() mutable {
    SetThreadName(impl_->name);
    job();
  });
}

struct DiskPool::Strand::Impl {
  Impl(DiskPool::Impl* the_pool, const std::string& name) : pool(the_pool), thread(the_pool->TakeThread()) {
    asio::post(thread->context, [name] { SetThreadName(name); });
  }
  ~Impl() { pool->ReturnThread(std::move(thread)); }

  void Run(Job job) {
    {
      const std::lock_guard lock(mutex);
      ++begun;
    }
    job();
    job = nullptr;
    {
      const std::lock_guard lock(mutex);
      ++ended;
      changed.notify_all();  // under the lock, because a waiting thread may destroy the strand
    }
  }

  DiskPool::Impl* pool;
  std::unique_ptr<Threads> thread;  // a single thread
  std::mutex mutex;                 // protects the following members
  std::condition_variable changed;
  std::uint64_t posted = 0, begun = 0, ended = 0;  // jobs
};

DiskPool::Strand::Strand(DiskPool* pool, const std::string& name)
    : impl_(std::make_unique<Impl>(pool->impl_.get(), name)) {}

DiskPool::Strand::~Strand() { Drain(); }

void DiskPool::Strand::Post(Job job) { (void)TryPost(std::numeric_limits<std::size_t>::max(), std::move(job)); }

bool DiskPool::Strand::TryPost(std::size_t waiting_max, Job job) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->posted - impl_->begun >= waiting_max) return false;
  asio::post(impl_->thread->context,
             [impl = impl_.get(), job = std::move(job)]() mutable { impl->Run(std::move(job)); });
  ++impl_->posted;  // in time, because the job cannot begin before this thread releases the lock
  return true;
}

void DiskPool::Strand::Drain() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this, until = impl_->posted] { return impl_->ended >= until; });
}

}  // namespace tarn
