// The messages between a worker and the scheduler: joining, heartbeats, views, and requests that are repeated until
// they are answered. Rules N1, N3, N5 of docs/protocol.md. Internal to worker/; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/metrics/metric_list.h"
#include "worker/client/client_context.h"
#include "worker/client/client_ticks.h"
#include "worker/client/completion.h"
#include "worker/client/repeated_requests.h"

namespace tarn::worker {

class ClientControl {
 public:
  ClientControl(ClientContext* context, ClientTicks* ticks) : context_(context), ticks_(ticks) {}

  void Join();
  void CreateTable(const TableSpec& spec, Completion<TableSpec>* done);
  // Completes when the table is in the view.
  void FindTable(const std::string& name, Completion<TableSpec>* done);
  void Barrier(Completion<>* done);
  void RequestLeases(LeaseRequest request, Completion<LeaseReply>* done);
  void RequestCheckpoint(Completion<std::string>* done);
  void Leave(const DataPosition& position);
  void SetMetrics(MetricList metrics) { metrics_ = std::move(metrics); }
  // From now on heartbeats report that the program has state for checkpoints.
  void KeepState() { context_->wants_heartbeat = keeps_state_ = true; }

  // Adopts the identity, the job and the view of a Welcome. False: it is for another process, or invalid.
  bool OnWelcome(const Welcome& welcome, std::uint64_t job);
  // Adopts a view. False: it is not newer, or invalid.
  bool OnView(const View& view);
  void OnCreateTable(const tarn::CreateTable& answer);
  void OnBarrier(const tarn::Barrier& answer);
  void OnLeaseReply(LeaseReply reply);
  void OnCheckpointRequest(const CheckpointRequest& answer);

  // Sends heartbeats and the checkpoint part, and repeats requests when they are due. Call it once per step.
  void Dispatch();
  TimeUs NextTimer() const;
  bool leaving() const { return leaving_; }
  bool awaits_leases() const { return !lease_waiters_.empty(); }
  // Whether the scheduler waits for this worker to reach a clock.
  bool awaited() const { return awaited_clock_.value != 0; }
  // Whether no request is open that must be answered before leaving.
  bool idle() const { return requests_.idle(); }
  void FailAll(const Error& error);
  std::uint64_t Hash() const;

 private:
  void UpdatePart();
  void AdoptTables();
  void SendHeartbeat();

  ClientContext* context_;
  ClientTicks* ticks_;
  RepeatedRequests requests_;
  // The completions of open requests.
  std::vector<std::pair<TableSpec, Completion<TableSpec>*>> creators_;    // with the requested table
  std::multimap<std::string, Completion<TableSpec>*> finders_;            // by name
  std::deque<Completion<>*> barrier_waiters_;                             // in order of issue, like those below
  std::deque<Completion<LeaseReply>*> lease_waiters_;                     // null: only reports, for the next request
  std::map<std::uint64_t, Completion<std::string>*> checkpoint_waiters_;  // by request number
  MetricList metrics_;
  TimeUs next_heartbeat_ = kNever;
  std::uint64_t barriers_ = 0, lease_requests_ = 0;
  Clock awaited_clock_;  // the clock to which the scheduler asked this worker to tick; 0: none
  bool leaving_ = false;
  bool keeps_state_ = false;
};

}  // namespace tarn::worker
