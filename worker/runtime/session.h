// The implementation of tarn::Client (worker/tarn.h): a worker's membership of a fleet, with a runtime on its own
// thread. It joins and leaves, bounds pending requests, and turns calls of any thread into requests. Internal to
// worker/.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/position.h"
#include "net/transport.h"
#include "worker/runtime/byte_budget.h"
#include "worker/runtime/planner_pool.h"
#include "worker/runtime/program_clock.h"
#include "worker/runtime/program_state.h"
#include "worker/runtime/reports.h"
#include "worker/runtime/requests.h"
#include "worker/runtime/runtime.h"

namespace tarn::worker {

// See ConnectOptions (worker/tarn.h).
struct SessionOptions {
  ClientOptions client;
  std::string scheduler;  // its address
  double timeout_seconds = 60;
  double wait_note_seconds = 10;
  std::size_t queued_bytes_max = limits::kQueuedBytesMax;
  std::size_t asked_bytes_max = limits::kAskedBytesMax;
};

// A table that was opened.
struct OpenTable {
  TableSpec spec;
  Positioner positioner;
};

// Any thread may call any function, except Join and the destructor. With KeepState, one thread makes all requests and
// ticks.
class Session {
 public:
  // transport_needs: an object that the transport uses; destroyed after it.
  Session(SessionOptions options, std::unique_ptr<net::Transport> transport,
          std::shared_ptr<void> transport_needs = nullptr);
  // Calls Leave unless it was called before, but waits only briefly for it. No other call may be in progress.
  ~Session();

  // Waits until this worker has joined, and meanwhile logs periodically what it waits for. Then starts the thread.
  // kTimeout: it has not joined within timeout_seconds. Other errors: the transport cannot connect, or the client has
  // ended.
  Status Join();
  // Leaves once; later calls return the same result. Without a time it waits without limit.
  Status Leave(std::optional<double> seconds);
  // After Join: as the scheduler sent it, without the view.
  const Welcome& welcome() const { return welcome_; }
  const FleetSection& fleet() const { return job_.fleet; }

  // Creates the table unless it exists; waits without limit for the scheduler.
  // kInvalidArgument: invalid as the job runs it.
  Expected<std::shared_ptr<const OpenTable>> CreateTable(const TableSpec& spec);
  // Waits until the table exists. kTimeout: no worker has created it within timeout_seconds.
  Expected<std::shared_ptr<const OpenTable>> FindTable(const std::string& name);
  // See PlannerPool::Make. `order` may be null.
  Status MakePlan(const OpenTable& table, std::span<const Key> keys, Plan* plan, CallerOrder* order) {
    return planners_->Make(table.spec, table.positioner, keys, plan, order);
  }

  // These submit requests and return them, in progress or failed. A pull fails with kOverloaded if the unanswered pulls
  // would exceed asked_bytes_max. A push blocks while the waiting gradients would exceed queued_bytes_max.
  std::shared_ptr<PullRequest> Pull(std::vector<PullRequest::Table> tables, std::optional<Clock> use, int priority);
  std::shared_ptr<Request> Push(std::vector<PushRequest::Table> tables, std::optional<Clock> pulled);
  // A push with another action than a step (worker::Client::Push); blocks like Push.
  std::shared_ptr<Request> Change(Plan plan, PushAction action, Buffer values);
  struct PushPullRequests {
    std::shared_ptr<Request> pushed;
    std::shared_ptr<PullRequest> pulled;
  };
  PushPullRequests PushPull(PushRequest::Table push, PullRequest::Table pull, const MaybePosition& position);
  // Without a clock: to the next one.
  std::shared_ptr<Request> TickTo(std::optional<Clock> to, const MaybePosition& position);
  void Prefetch(Plan plan);
  Status Barrier();
  Expected<LeaseReply> RequestLeases(LeaseRequest request);
  std::shared_ptr<Request> RequestCheckpoint();
  // See ProgramState. `save` is called before the first request after a tick, and in RequestLeases.
  void KeepState(std::function<Expected<Buffer>()> save) { state_->Keep(std::move(save)); }
  void SaveState() { state_->SaveAfterTick(clock()); }
  Expected<Buffer> SavedState(WorkerRank rank) { return state_->Read(rank); }

  // See tarn::Client.
  Status Report(std::span<const Figure> figures);

  void Cancel() { runtime_.RequestEnd(); }
  // Why the client has ended; no error while it continues.
  Status Ended() const { return runtime_.ended(); }

  Clock clock() const { return clock_.now(); }
  ClientCounters counters();
  std::vector<std::uint64_t> staleness();

 private:
  std::shared_ptr<const OpenTable> Opened(TableSpec spec);
  std::string NamesOf(std::span<const PullRequest::Table> tables);
  std::string JoinNote(TimeUs begun, double waited) const;
  Status TakeRoom(std::span<const PullRequest::Table> tables);
  ClientOptions OfProgram(ClientOptions client);
  std::shared_ptr<Request> MakeTick(std::optional<Clock> to, const MaybePosition& position);
  template <typename Value, typename Read>
  Value ReadClient(const Read& read);

  const SessionOptions options_;
  ByteBudget asked_, queued_;
  std::shared_ptr<void> transport_needs_;
  std::unique_ptr<net::Transport> transport_;
  ProgramClock clock_;  // used in turns of the runtime
  Runtime runtime_;
  bool joined_ = false;
  // From Join on:
  Welcome welcome_;
  Job job_;
  std::optional<PlannerPool> planners_;
  std::optional<ProgramState> state_;
  std::optional<Reports> reports_;
  std::mutex names_mutex_;
  std::map<TableId, std::string> names_;  // of opened tables, for errors
  std::once_flag leave_once_;
  Status leave_status_;
};

}  // namespace tarn::worker
