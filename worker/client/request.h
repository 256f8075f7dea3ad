// A request that another thread than the client's makes, and what that thread waits for: posted to the runtime
// (runtime.h), started by whoever takes the next turn, ended by the client, which has it as the completion. One object
// for all of this. Internal to worker/; the public faces are RowsFuture and StatusFuture of worker/tarn.h.
//
//   runtime.Submit(request);      // any thread
//   request->Wait();              // takes turns itself where it can (client_driver.h)
//
// A request that was submitted owns itself until it ends: whoever asked may forget it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "worker/client/byte_budget.h"
#include "worker/client/client.h"
#include "worker/client/client_driver.h"

namespace tarn::worker {

class Request {
 public:
  Request() = default;
  virtual ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Before it is submitted. The request counts so many bytes of the budget, which the caller has taken, until it ends.
  void Charge(ByteBudget* budget, std::size_t bytes) { budget_ = budget, bytes_ = bytes; }
  // It is submitted, and owns itself until it ends. driver: of whoever takes turns.
  virtual void SetUnderWay(std::shared_ptr<Request> self, const std::shared_ptr<ClientDriver>& driver) {
    self_ = std::move(self);
    driver_ = driver;
  }

  // In a turn: hands it to the client.
  virtual void Start(Client* client, TimeUs now, Outbox* out) = 0;
  // Ends it, instead of Start or while it is under way. Of several ends the first counts.
  virtual void Abort(const Error& error) { Finish(error); }

  bool Ready() const { return done_.load(std::memory_order_acquire); }
  Status Wait();
  // kTimeout after `seconds`, which may be infinite; one may wait again.
  Status WaitFor(double seconds);

 protected:
  void Finish(Error error = {ErrorCode::kOk, ""});
  // Whoever asked will read the answer soon: what it posts before may wait for that (client_driver.h).
  void ExpectReader() { awaited_ = true; }

 private:
  Status Read(std::unique_lock<std::mutex> lock);

  std::shared_ptr<ClientDriver> driver_;
  std::shared_ptr<Request> self_;  // while it is under way
  ByteBudget* budget_ = nullptr;
  std::size_t bytes_ = 0;
  bool awaited_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> done_{false};
  bool unread_ = false;  // done, awaited, and nobody has waited yet
  Error error_{ErrorCode::kOk, ""};
};

}  // namespace tarn::worker
