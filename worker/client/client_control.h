// Everything between a worker and the scheduler: joining, heartbeats, views, and the requests that are repeated until
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

namespace tarn::worker {

class ClientControl {
 public:
  ClientControl(ClientContext* context, ClientTicks* ticks) : context_(context), ticks_(ticks) {}

  void Join();
  void CreateTable(const TableSpec& spec, Completion<TableSpec>* done);
  // Done once the table is in the view.
  void FindTable(const std::string& name, Completion<TableSpec>* done);
  void Barrier(Completion<>* done);
  void RequestLeases(LeaseRequest request, Completion<LeaseReply>* done);
  void RequestCheckpoint(Completion<std::string>* done);
  void Leave(const DataPosition& position);
  void SetMetrics(MetricList metrics) { metrics_ = std::move(metrics); }

  // Takes the identity, the job and the view of a Welcome. False: not for us, or it cannot be used.
  bool OnWelcome(const Welcome& welcome, std::uint64_t job);
  // False: not newer, or it cannot be used.
  bool OnView(const View& view);
  void OnCreateTable(const tarn::CreateTable& answer);
  void OnBarrier(const tarn::Barrier& answer);
  void OnLeaseReply(LeaseReply reply);
  void OnCheckpointRequest(const CheckpointRequest& answer);

  // Keeps the checkpoint part, the heartbeat and all repeats going; call once a step.
  void Dispatch();
  TimeUs NextTimer() const;
  bool leaving() const { return leaving_; }
  // The scheduler waits for a clock of this worker's.
  bool awaited() const { return awaited_clock_.value != 0; }
  // No request waits for an answer that leaving must wait for.
  bool idle() const;
  void FailAll(const Error& error);
  std::uint64_t Hash() const;

 private:
  struct Repeating {
    Body body;
    TimeUs due = 0;  // at once
    std::uint32_t repeats = 0;
  };

  void Repeat(Body body);
  bool MustWait(const Repeating& r) const;
  template <typename Kind, typename Matches>
  bool Answered(const Matches& matches);
  void FollowPart();
  void AdoptTables();
  void SendHeartbeat();

  ClientContext* context_;
  ClientTicks* ticks_;
  std::vector<Repeating> repeating_;  // in order of issue
  // Whoever waits for their answers.
  std::vector<std::pair<TableSpec, Completion<TableSpec>*>> creators_;  // by the table as it was asked for
  std::multimap<std::string, Completion<TableSpec>*> finders_;          // by name
  std::deque<Completion<>*> barrier_waiters_;                           // in order of issue, as those below
  std::deque<Completion<LeaseReply>*> lease_waiters_;
  std::map<std::uint64_t, Completion<std::string>*> checkpoint_waiters_;  // by the number of the request
  MetricList metrics_;
  TimeUs next_heartbeat_ = kNever;
  std::uint64_t barriers_ = 0, lease_requests_ = 0;
  CheckpointId part_sent_;
  Clock awaited_clock_;  // the scheduler told this worker to tick to it; 0: nothing is awaited
  bool leaving_ = false;
};

}  // namespace tarn::worker
