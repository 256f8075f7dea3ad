// The Boost.Asio context of a program: one thread that receives the process's signals and runs the other handlers of
// io(), such as the HTTP server (net/http/). State machines never run on it, and their threads never wait for it.
//
//   auto process = ProcessContext::Start({SIGINT, SIGTERM});   // in main, before any other thread starts
//   (*process)->OnSignal([&](int) { loop.RequestStop(); });
//   loop.Run();
//   (*process)->OnSignal([](int) {});                          // before the loop is destroyed: ignores later signals
//
// The signals are blocked in every other thread, so no system call of theirs is interrupted. Wraps Boost.Asio, which
// stays out of this header.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "core/error.h"

namespace boost::asio {
class io_context;
}  // namespace boost::asio

namespace tarn {

class ProcessContext {
 public:
  // Starts the thread. Until OnSignal is called, each of `signals` ends the process as if it were not handled. kIo if a
  // limit of the process is too low for the thread or its files.
  static Expected<std::unique_ptr<ProcessContext>> Start(std::initializer_list<int> signals);
  // Ends the thread. Handlers that wait in io() are dropped, and later signals are ignored.
  ~ProcessContext();
  ProcessContext(const ProcessContext&) = delete;
  ProcessContext& operator=(const ProcessContext&) = delete;

  // From now on calls `handler` on the context's thread with the number of each signal, once for each time it arrives.
  // After this returns, the previous handler is neither running nor called again. Any thread, but not from a handler.
  void OnSignal(std::function<void(int)> handler);

  // The context's thread runs it. Handlers must not block.
  boost::asio::io_context& io();

 private:
  struct Impl;
  explicit ProcessContext(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn
