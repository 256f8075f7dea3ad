#include "core/process_context.h"

#include <pthread.h>
#include <signal.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/log.h"
#include "core/process_limits.h"

namespace tarn {

namespace asio = boost::asio;

struct ProcessContext::Impl {
  explicit Impl(std::initializer_list<int> numbers) {
    sigemptyset(&mask);
    for (const int number : numbers) {
      signals.add(number);
      sigaddset(&mask, number);
    }
    pthread_sigmask(SIG_BLOCK, &mask, nullptr);
    if (numbers.size() != 0) Await();
    thread = std::thread([this] {
      pthread_setname_np(pthread_self(), "process");
      pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
      RunAll();
      pthread_sigmask(SIG_BLOCK, &mask, nullptr);
    });
  }

  ~Impl() {
    io.stop();
    thread.join();
  }

  // An exception of a handler, such as std::bad_alloc, ends only that handler.
  void RunAll() {
    for (;;) {
      try {
        io.run();
        return;
      } catch (const std::exception& e) {
        LogError("a handler of the thread 'process' (signals, HTTP) threw an exception: {}", e.what());
      }
    }
  }

  void Await() {
    signals.async_wait([this](const boost::system::error_code& error, int number) {
      if (error) return;
      Await();  // first, because the handler may throw
      Handle(number);
    });
  }

  void Handle(int number) {
    const std::lock_guard lock(mutex);
    if (handler) return handler(number);
    ::signal(number, SIG_DFL);
    ::raise(number);
  }

  sigset_t mask;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  asio::signal_set signals{io};
  std::mutex mutex;
  std::function<void(int)> handler;
  std::thread thread;
};

Expected<std::unique_ptr<ProcessContext>> ProcessContext::Start(std::initializer_list<int> signals) {
  try {
    return std::unique_ptr<ProcessContext>(new ProcessContext(std::make_unique<Impl>(signals)));
  } catch (const std::exception& e) {
    return std::unexpected(LimitError(std::string("cannot start the thread for signals: ") + e.what()));
  }
}

ProcessContext::ProcessContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessContext::~ProcessContext() = default;

void ProcessContext::OnSignal(std::function<void(int)> handler) {
  const std::lock_guard lock(impl_->mutex);
  impl_->handler = std::move(handler);
}

asio::io_context& ProcessContext::io() { return impl_->io; }

}  // namespace tarn
