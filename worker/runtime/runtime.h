// Runs a worker::Client over a net::Transport, in turns: Act, then Exchange. Act executes posted requests, connects to
// the shards of a new view and sends pending messages. Exchange waits for messages, passes them to the client and fires
// its timers. Completions are called in both. Internal to worker/.
//
//   Runtime runtime(options, transport);
//   runtime.Start(scheduler);
//
//   // The training loop executes the turns itself, and makes its requests between them: no lock, no thread.
//   while (runtime.Act()) {
//     runtime.Exchange(at_most);
//     runtime.client().Pull(..., runtime.outbox());
//   }
//
//   // For tarn::Client, a thread or a caller that waits executes the turns (client_driver.h).
//   runtime.StartThread();
//   runtime.Submit(request);
//
// Without StartThread one thread at a time may use it. After StartThread any thread may call Submit, RequestEnd, Wake
// and Now; only the thread that executes a turn may call the rest.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/message.h"
#include "net/transport.h"
#include "worker/client/client.h"
#include "worker/runtime/client_driver.h"
#include "worker/runtime/posted_requests.h"
#include "worker/runtime/request.h"
#include "worker/runtime/shard_watch.h"

namespace tarn::worker {

class Runtime final : public ClientDriver::Loop {
 public:
  static constexpr TimeUs kWaitMaxUs = 100'000;  // of one Exchange

  // The transport must outlive the runtime.
  Runtime(const ClientOptions& options, net::Transport* transport) : transport_(transport), client_(options) {}
  // Ends the thread, if there is one, and fails its pending requests, with kCancelled if the client was running. No
  // other call may be in progress.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Connects to the scheduler at this address and begins to join its fleet. Once.
  Status Start(const std::string& scheduler);

  // False, for the reason error(): the client was stopped or fenced, has received nothing from the scheduler for too
  // long (rule N7) or has no memory, or a shard cannot be connected. Pending requests have failed, and later ones fail.
  // A shard that does not answer does not end the client; Act logs it periodically (shard_watch.h).
  bool Act() override;
  // Blocks until messages arrive or Wake is called, but no longer than `at_most`, kWaitMaxUs or the time to the
  // client's next timer. Then handles the messages, and the timer if it is due. Of the other calls only the destructor
  // blocks.
  void Exchange(TimeUs at_most) override;
  const Error& error() const { return posted_.error(); }
  Status ended() const { return posted_.ended(); }  // any thread
  TimeUs waited_us() const { return waited_us_; }   // for messages, in the last Exchange

  // Ends the wait of the Exchange in progress, or else of the next one. Any thread.
  void Wake() override { transport_->Wake(); }

  Client& client() { return client_; }
  const Client& client() const { return client_; }
  // Pass it to calls of client(), which append their messages; the next Act sends them.
  Outbox* outbox() { return &outbox_; }
  static TimeUs Now();  // monotonic

  // From now on a thread of the runtime, or callers that wait for requests, execute the turns. Call it once. After it,
  // a turn that runs out of memory ends the client (kIo). Without it, Act and Exchange throw std::bad_alloc.
  void StartThread();
  // After StartThread: pending requests fail soon with kCancelled, and later ones at once. Any thread; idempotent.
  void RequestEnd();
  // Any thread. Requests of one thread are started in the order of its calls. `may_wait`: the request may be delayed,
  // to be sent together with requests that the caller submits soon.
  void Submit(std::shared_ptr<Request> request, bool may_wait = false) { Submit(std::span(&request, 1), may_wait); }
  // These are started in one turn.
  void Submit(std::span<const std::shared_ptr<Request>> requests, bool may_wait = false);

 private:
  void StartPosted();
  Status ConnectShards();
  Status CheckClient() const;
  void End(const Error& error);

  net::Transport* transport_;
  std::string scheduler_;
  Client client_;
  Outbox outbox_;
  std::vector<net::Received> received_;
  ViewVersion connected_view_;
  ShardWatch shard_watch_;
  TimeUs waited_us_ = 0;
  bool exhausted_ = false;  // an allocation failed: the client's state is undefined

  PostedRequests posted_;              // to be started
  PostedRequests::Requests starting_;  // taken from posted_ in this turn
  std::atomic<bool> stop_{false};

  std::shared_ptr<ClientDriver> driver_;  // null: without a thread
  std::thread thread_;
};

}  // namespace tarn::worker
