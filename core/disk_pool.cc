#include "core/disk_pool.h"

#include <pthread.h>

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <future>
#include <memory>
#include <utility>

namespace tarn {

namespace asio = boost::asio;

struct DiskPool::Impl {
  Impl(std::string the_name, unsigned threads) : name(std::move(the_name)), pool(threads) {}
  const std::string name;
  asio::thread_pool pool;
};

DiskPool::DiskPool(std::string name, unsigned threads) : impl_(std::make_unique<Impl>(std::move(name), threads)) {}
DiskPool::~DiskPool() { impl_->pool.join(); }

struct DiskPool::Strand::Impl {
  explicit Impl(DiskPool::Impl* the_pool) : pool(the_pool), strand(asio::make_strand(the_pool->pool)) {}
  DiskPool::Impl* pool;
  asio::strand<asio::thread_pool::executor_type> strand;
};

DiskPool::Strand::Strand(DiskPool* pool) : impl_(std::make_unique<Impl>(pool->impl_.get())) {}
DiskPool::Strand::~Strand() { Drain(); }

void DiskPool::Strand::Post(Job job) {
  asio::post(impl_->strand, [pool = impl_->pool, job = std::move(job)]() mutable {
    thread_local bool named = false;  // the pool's threads are Asio's
    if (!std::exchange(named, true)) pthread_setname_np(::pthread_self(), pool->name.c_str());
    job();
  });
}

void DiskPool::Strand::Drain() {
  const auto done = std::make_shared<std::promise<void>>();  // setting it may outlast the wait
  Post([done] { done->set_value(); });
  done->get_future().wait();
}

}  // namespace tarn
