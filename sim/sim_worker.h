// A simulated worker process: the client state machine and a small training loop with several batches under way.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "sim/network.h"
#include "sim/oracle.h"
#include "sim/top_k_model.h"
#include "worker/client/client.h"
#include "worker/client/evaluation_start.h"

namespace tarn::sim {

class SimWorker {
 public:
  // schedule(delay): call OnCompute after the delay. `rng_seed` gives compute times.
  using Schedule = std::function<void(TimeUs delay)>;
  SimWorker(const Scenario& scenario, worker::ClientOptions options, Oracle* oracle, Schedule schedule);

  void Start(TimeUs now, Outbox* out);
  void Hear(Peer from, Message message, TimeUs now) { client_.Hear(from, std::move(message), now); }
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  void OnCompute(TimeUs now, Outbox* out);  // the front batch's compute time is over

  const worker::Client& client() const { return client_; }
  std::string Describe() const;

 private:
  struct Batch {
    LeaseGrant lease;
    std::uint64_t first_row = 0, rows = 0;
    bool last_of_lease = false;
    Clock clock;
    std::vector<Key> keys;  // with duplicates
    worker::Plan sparse, dense;
    std::set<RequestId> waiting;
    std::map<RequestId, int> pull_of;  // request -> 0 sparse, 1 dense, 2 sparse once more
    std::size_t mark = 0;              // oracle records when the pulls were issued
    std::size_t mark_again = 0;        // and when the sparse one was issued once more; 0: it was not
    bool computing = false;
  };

  void Advance(TimeUs now, Outbox* out);
  void OnEvent(worker::ClientEvent event, TimeUs now, Outbox* out);
  void OpenTables(TimeUs now, Outbox* out);
  void Fill(TimeUs now, Outbox* out);  // start pulls of further batches
  void StartPulls(Batch* batch, TimeUs now, Outbox* out);
  void PullAgain(Batch* batch, TimeUs now, Outbox* out);
  void CheckPull(const Batch& batch, int which, const worker::PullDone& done);
  void FinishTrain(Batch* batch, TimeUs now, Outbox* out);
  void AskForWork(TimeUs now, Outbox* out);
  void NextBatch(Batch* batch);
  void StartModel();
  std::size_t SectionsOf(const std::map<Key, float>& sent) const;

  const Scenario& scenario_;
  worker::Client client_;
  Oracle* oracle_;
  Schedule schedule_;
  SplitMix rng_;
  std::unique_ptr<worker::Planner> planner_;
  std::vector<TableSpec> tables_;   // ready ones: sparse, dense
  std::optional<TopKModel> model_;  // if the largest rows alone are pushed
  bool tables_asked_ = false;
  std::deque<LeaseGrant> leases_;
  std::uint64_t lease_offset_ = 0;  // rows of leases_.front() already in a batch
  std::deque<Batch> batches_;
  struct EarlyPull {
    RequestId request;
    Clock clock;
    bool done = false;
  };
  std::optional<EarlyPull> early_;  // PushPull: the dense pull of the next batch went with the push
  Clock next_clock_;
  std::vector<LeaseDone> done_;                                      // to be reported
  std::map<std::uint64_t, LeaseDone> done_at_tick_;                  // clock -> lease that is done when the tick is
  std::map<RequestId, std::pair<std::size_t, std::size_t>> pushes_;  // request -> record, sections
  std::map<RequestId, std::size_t> layer_pushes_;                    // of the dense table: request -> sections
  worker::EvaluationStart evaluation_;
  std::uint64_t spared_ = 0;  // told to the oracle
  bool asked_ = false, leaving_ = false, finished_ = false;
  std::optional<Clock> jump_to_;
  DataPosition position_;
};

}  // namespace tarn::sim
