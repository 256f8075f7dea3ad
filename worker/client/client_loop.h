// The client's loop: it owns a net::Transport and a worker::Client, and runs what callers post. Its turns are taken by
// its I/O thread or by a caller that waits (worker/client/client_driver.h), by one at a time.
// Internal to worker/; tarn::Client (worker/tarn.h) is the public face.
//
// All public functions may be called from any thread, unless they say otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/transport.h"
#include "worker/client/client.h"
#include "worker/client/client_driver.h"
#include "worker/client/client_exchange.h"
#include "worker/client/client_result.h"

namespace tarn::worker {

class ClientLoop {
 public:
  using ResultPtr = std::shared_ptr<ClientResult>;
  using PlanPtr = std::shared_ptr<const Plan>;

  struct Bounds {
    std::size_t queued_bytes_max;  // of pushes that are not acknowledged; beyond, Push blocks
    std::size_t asked_bytes_max;   // of pulls that are not answered; beyond, they fail
  };
  ClientLoop(ClientOptions options, const Bounds& bounds, std::unique_ptr<net::Transport> transport);
  // Ends the thread; whatever is still waited for fails with kCancelled. Nobody may be in a call.
  ~ClientLoop();

  // Starts the thread and waits until the scheduler has welcomed us; says so in the log every `note_seconds`. Once.
  Status Join(const std::string& scheduler, double seconds, double note_seconds);
  // After a successful Join: as the scheduler sent it, without the view.
  const Welcome& welcome() const { return welcome_; }
  std::uint32_t partition_bits() const { return partition_bits_; }

  // Requests, executed in the order of the calls of a thread. Each ends in its result. Without a clock: the client's
  // own at the time of execution. A pull ends in kOverloaded if with it more than asked_bytes_max were asked for and
  // not answered; a single one always goes.
  void Pull(PlanPtr plan, std::optional<Clock> use_clock, int priority, ResultPtr result);
  void Prefetch(PlanPtr plan);
  // Blocks while with this one more than queued_bytes_max of pushes would wait; a single one always goes.
  void Push(PlanPtr plan, Buffer gradients, std::optional<Clock> pulled_clock, ResultPtr result);
  void PushPull(PlanPtr plan, Buffer gradients, MaybePosition position, ResultPtr pushed, ResultPtr pulled);
  void TickTo(std::optional<Clock> clock, MaybePosition position, ResultPtr result);
  void CreateTable(TableSpec spec, ResultPtr result);
  void FindTable(std::string name, ResultPtr result);  // when somebody has created it
  void Barrier(ResultPtr result);
  void RequestLeases(LeaseRequest request, ResultPtr result);
  void Leave(ResultPtr result);

  Clock clock() const;  // the start clock and every tick asked for
  Client::Counters counters() const;
  std::vector<std::uint64_t> staleness() const;

 private:
  using Command = std::move_only_function<void()>;
  struct Posted {
    Command run;
    std::size_t bytes = 0;
    std::vector<ResultPtr> results;  // fail with the loop if it ends before the command
  };

  // may_wait: for others that the caller posts soon, to travel with them (client_driver.h).
  void Post(Posted posted, bool may_wait = false);
  void WaitForSpace(std::size_t bytes);
  bool TakeRoom(const Plan& plan, ClientResult* pull);
  std::string JoinNote(double waited) const;
  Clock AdvanceClock(std::optional<Clock> to);
  bool TryAct();
  void TryExchange(TimeUs at_most);
  bool Act();
  bool Stops() const;
  void RunCommands();
  void Exchange(TimeUs at_most);
  void Publish();
  void Deliver(ClientEvent event);
  void Resolve(RequestId request, const std::function<void(ClientResult&)>& fill);
  void OnTickDone(Clock clock);
  void OnTableReady(const TableReady& ready);
  void AnswerTableFinders();
  void End(Error error);
  static TimeUs Now() { return ClientExchange::Now(); }
  Client& client() { return exchange_.client(); }

  // Of whoever takes a turn, once the thread runs.
  std::unique_ptr<net::Transport> transport_;
  ClientExchange exchange_;
  std::vector<Posted> taken_;  // of posted_, in this turn
  bool exhausted_ = false;     // there was no memory: what the step had changed is undefined
  std::map<RequestId, ResultPtr> requests_;
  std::multimap<Clock, ResultPtr> ticks_;
  std::vector<std::pair<TableSpec, ResultPtr>> creators_;  // as wanted
  std::multimap<std::string, ResultPtr> finders_;
  std::deque<ResultPtr> barriers_, leases_, leavers_;
  TimeUs next_metrics_ = 0;
  TimeUs next_staleness_ = 0;
  bool pulled_ = false;  // since the last Publish

  // Shared.
  const Bounds bounds_;
  const std::shared_ptr<std::atomic<std::size_t>> asked_bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Posted> posted_;
  std::size_t posted_bytes_ = 0, pending_bytes_ = 0;
  bool joined_ = false, stop_ = false;
  TimeUs join_begun_ = 0, scheduler_heard_ = 0;
  std::optional<Error> ended_;
  Clock clock_;
  Client::Counters counters_;
  std::vector<std::uint64_t> staleness_;

  // Written before joined_ is set, constant afterwards.
  Welcome welcome_;
  std::uint32_t partition_bits_ = 0;

  const std::shared_ptr<ClientDriver> driver_;
  std::thread thread_;
};

}  // namespace tarn::worker
