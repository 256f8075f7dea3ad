// A request that any thread posts to the runtime (runtime.h) and then waits for. The thread that executes the next turn
// of the client's loop starts it; the client completes it (it is the client's completion callback). Internal to
// worker/; the public interfaces are RowsFuture and StatusFuture of worker/tarn.h.
//
//   runtime.Submit(request);      // any thread
//   request->Wait();              // executes turns itself if no other thread does (client_driver.h)
//
// A submitted request owns itself until it is completed, so the caller may drop it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "worker/client/client.h"
#include "worker/runtime/byte_budget.h"
#include "worker/runtime/client_driver.h"

namespace tarn::worker {

class Request {
 public:
  Request() = default;
  virtual ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Call it before submission. The request holds the given bytes of the budget, which the caller has acquired, until it
  // is completed.
  void Charge(ByteBudget* budget, std::size_t bytes) { budget_ = budget, bytes_ = bytes; }
  // Marks it as submitted: it owns itself until it is completed. driver: executes the turns.
  void MarkSubmitted(std::shared_ptr<Request> self, const std::shared_ptr<ClientDriver>& driver) {
    self_ = std::move(self);
    driver_ = driver;
  }

  // Called in a turn: passes the request to the client.
  virtual void Start(Client* client, TimeUs now, Outbox* out) = 0;
  // Completes it with `error`, instead of Start or while it is in progress. Only the first completion has an effect.
  void Abort(const Error& error) { Finish(error); }

  bool Ready() const { return done_.load(std::memory_order_acquire); }
  Status Wait();
  // kTimeout after `seconds`, which may be infinite; the caller may wait again.
  Status WaitFor(double seconds);

 protected:
  void Finish(Error error = {ErrorCode::kOk, ""});
  // Marks that the caller will read the answer soon. Once the answer has arrived, requests that the caller posts before
  // it reads the answer may be batched until then (client_driver.h).
  void ExpectReader() { awaited_ = true; }
  // In the destructor: the error with which it ended, if nobody has read it.
  const Error* unread_error() const { return read_ || error_.code == ErrorCode::kOk ? nullptr : &error_; }

 private:
  Status Read(std::unique_lock<std::mutex> lock);

  std::shared_ptr<ClientDriver> driver_;
  std::shared_ptr<Request> self_;  // set while it is in progress
  ByteBudget* budget_ = nullptr;
  std::size_t bytes_ = 0;
  bool awaited_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> done_{false};
  bool unread_ = false;  // done and awaited_, but the caller has not read the answer yet
  bool read_ = false;
  Error error_{ErrorCode::kOk, ""};
};

}  // namespace tarn::worker
