#include "core/disk_pool.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tarn {

namespace asio = boost::asio;

struct DiskPool::Impl {
  ~Impl() {
    work.reset();
    for (std::thread& thread : threads) thread.join();
  }

  void AddThread() {
    threads.emplace_back([this] { context.run(); });
  }
  void AddStrand() {
    const std::lock_guard lock(mutex);
    if (strands >= threads.size()) AddThread();
    ++strands;
  }
  void RemoveStrand() {
    const std::lock_guard lock(mutex);
    --strands;
  }

  std::string name;
  asio::io_context context;
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(context);
  std::mutex mutex;  // guards the next two
  std::size_t strands = 0;
  std::vector<std::thread> threads;
};

DiskPool::DiskPool() : impl_(std::make_unique<Impl>()) {}
DiskPool::DiskPool(std::string name, unsigned threads) : DiskPool() {
  impl_->name = std::move(name);
  for (unsigned i = 0; i < threads; ++i) impl_->AddThread();
}
DiskPool::~DiskPool() = default;

namespace {

void SetThreadName(const std::string& name) { pthread_setname_np(::pthread_self(), name.c_str()); }

}  // namespace

void DiskPool::Post(Job job) {
  asio::post(impl_->context, [this, job = std::move(job)]() mutable {
    SetThreadName(impl_->name);
    job();
  });
}

struct DiskPool::Strand::Impl {
  Impl(DiskPool::Impl* the_pool, std::string the_name)
      : pool(the_pool), name(std::move(the_name)), strand(asio::make_strand(the_pool->context)) {
    pool->AddStrand();
  }
  ~Impl() { pool->RemoveStrand(); }

  void Run(Job job) {
    {
      const std::lock_guard lock(mutex);
      ++begun;
    }
    SetThreadName(name);
    job();
    job = nullptr;
    {
      const std::lock_guard lock(mutex);
      ++ended;
      changed.notify_all();  // under the lock: whoever waits may destroy the strand
    }
  }

  DiskPool::Impl* pool;
  const std::string name;
  asio::strand<asio::io_context::executor_type> strand;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::uint64_t posted = 0, begun = 0, ended = 0;  // jobs
};

DiskPool::Strand::Strand(DiskPool* pool, std::string name)
    : impl_(std::make_unique<Impl>(pool->impl_.get(), std::move(name))) {}

DiskPool::Strand::~Strand() { Drain(); }

void DiskPool::Strand::Post(Job job) { (void)TryPost(std::numeric_limits<std::size_t>::max(), std::move(job)); }

bool DiskPool::Strand::TryPost(std::size_t waiting_max, Job job) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->posted - impl_->begun >= waiting_max) return false;
  asio::post(impl_->strand, [impl = impl_.get(), job = std::move(job)]() mutable { impl->Run(std::move(job)); });
  ++impl_->posted;  // before the job begins, which takes the lock
  return true;
}

void DiskPool::Strand::Drain() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this, until = impl_->posted] { return impl_->ended >= until; });
}

}  // namespace tarn
