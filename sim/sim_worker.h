// A simulated worker process: the client state machine and a small training loop with several batches in progress.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "sim/network.h"
#include "sim/oracle.h"
#include "sim/sim_leases.h"
#include "sim/top_k_model.h"
#include "worker/client/client.h"
#include "worker/client/completion.h"
#include "worker/client/evaluation_start.h"
#include "worker/client/pulled_rows.h"

namespace tarn::sim {

inline constexpr TimeUs kSlowBatchUs = 6'000'000;  // longer than a lease

class SimWorker final : private worker::Completion<TableSpec>,
                        private worker::Completion<LeaseReply>,
                        private worker::Completion<CheckpointId>,
                        private worker::Completion<Buffer> {
 public:
  // schedule(delay): must call OnCompute after the delay. The nonce in `options` seeds the random compute times.
  using Schedule = std::function<void(TimeUs delay)>;
  SimWorker(const Scenario& scenario, const worker::ClientOptions& options, Oracle* oracle, Schedule schedule);

  void Start(TimeUs now, Outbox* out);
  void Handle(Peer from, Message message, TimeUs now) { client_.Handle(from, std::move(message), now); }
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  void OnCompute(TimeUs now, Outbox* out);  // the front batch's compute time is over

  const worker::Client& client() const { return client_; }
  bool may_be_late() const { return scenario_.job.consistency.backup_workers != 0; }
  std::string Describe() const;

 private:
  struct Batch;
  enum class Which : std::uint8_t { kSparse, kDense, kSparseAgain, kChanged };
  // Takes the rows of one pull of a batch, and checks them.
  class BatchPull final : public worker::PullSink {
   public:
    // `mark`: the number of issued pushes, or for kChanged of issued changes, when the pull is issued.
    BatchPull(SimWorker* worker, Batch* batch, Which which, std::size_t mark);
    void Rows(const worker::PulledRows& rows) override { rows_.Take(rows); }
    void Done(std::uint64_t staleness) override;
    void Failed(const Error& error) override { worker_->RequestFailed(error); }
    Which which() const { return which_; }
    std::size_t mark() const { return mark_; }
    const Buffer& rows() const { return rows_.values(); }
    bool done() const { return done_; }

   private:
    SimWorker* worker_;
    Batch* batch_;
    Which which_;
    std::size_t mark_;
    worker::PlanRows rows_;
    bool done_ = false;
  };
  struct Batch {
    const worker::Plan& PlanOf(Which which) const {
      return which == Which::kDense ? dense : which == Which::kChanged ? changed : sparse;
    }
    bool train() const { return rows.lease.purpose == LeasePurpose::kTrain; }
    const BatchPull& sparse_pull() const { return pulls.front(); }
    // The number of pulls without an answer.
    std::ptrdiff_t waiting() const { return std::ranges::count(pulls, false, &BatchPull::done); }
    SimLeases::Rows rows;
    Clock clock;
    worker::Plan sparse, dense;
    worker::Plan changed;  // rows that workers assign and delete
    std::deque<BatchPull> pulls;
    bool read_once = false;  // the sparse rows have arrived, and a second pull may have been issued
    bool computing = false;
    bool dense_sent = false;
  };
  // The dense pull of the next batch, sent with the tick.
  class EarlyPull final : public worker::PullSink {
   public:
    EarlyPull(SimWorker* worker, Clock clock) : worker_(worker), clock_(clock) {}
    void Rows(const worker::PulledRows&) override {}
    void Done(std::uint64_t) override { done_ = true; }
    void Failed(const Error& error) override { worker_->RequestFailed(error); }
    bool Delays(Clock clock) const { return clock == clock_ && !done_; }
    Clock clock() const { return clock_; }

   private:
    SimWorker* worker_;
    Clock clock_;
    bool done_ = false;
  };
  // Reports an acknowledged push to the oracle.
  class PushAcked final : public worker::Completion<> {
   public:
    // `record`: number of the push's record in the oracle; none: the oracle has no record of it. `change`: number of
    // the action in the oracle's RowChanges; none: the push is no such action.
    PushAcked(SimWorker* worker, std::optional<std::size_t> record, std::size_t sections,
              std::optional<std::size_t> change = {})
        : worker_(worker), record_(record), change_(change), sections_(sections) {}
    void Done() override;
    void Failed(const Error& error) override { worker_->RequestFailed(error); }
    bool done() const { return done_; }

   private:
    SimWorker* worker_;
    std::optional<std::size_t> record_, change_;
    std::size_t sections_;
    bool done_ = false;
  };

  // Computes the front batch for a random time.
  struct Compute {
    Schedule schedule;
    SplitMix rng;
    void Begin(TimeUs most, double slow = 0) {
      const bool is_slow = slow > 0 && rng.Chance(slow);
      schedule(100 + TimeUs(rng.Below(std::uint64_t(most))) + (is_slow ? kSlowBatchUs : 0));
    }
  };
  struct Tables {
    bool asked = false;
    std::vector<TableSpec> specs;  // ready ones: sparse, dense
    std::unique_ptr<worker::Planner> planner;
    bool ready() const { return specs.size() == 2; }
    const TableSpec& sparse() const { return specs[0]; }
    const TableSpec& dense() const { return specs[1]; }
  };

  // A program with state: after each tick it calls AwaitSave, and waits for the result.
  struct Program {
    ProgramState state;
    bool begun = false;
    bool ticked = false;  // must call AwaitSave
    bool waits = false;   // for the result
    CheckpointId wanted;  // 0: none
    bool busy() const { return ticked || waits || wanted.value != 0; }
  };

  // The results of CreateTable, RequestLeases, AwaitSave and ReadBlobOf.
  void Done(TableSpec table) override;
  void Done(LeaseReply reply) override;
  void Done(CheckpointId wanted) override;
  void Done(Buffer blob) override;
  void Failed(const Error& error) override { oracle_->Fail("a call of the client failed: " + error.message); }
  void RequestFailed(const Error& error) { oracle_->Fail("a request failed: " + ToString(error)); }

  void Advance(TimeUs now, Outbox* out);
  void HandleAcknowledged();
  worker::Completion<>* Acknowledged(std::optional<std::size_t> record, std::size_t sections);
  int unacked_pushes() const;
  void OpenTables(TimeUs now, Outbox* out);
  void Fill(TimeUs now, Outbox* out);  // starts the pulls of further batches, and the front batch's compute time
  void StartPulls(Batch* batch, TimeUs now, Outbox* out);
  void PullAgain(Batch* batch, TimeUs now, Outbox* out);
  worker::TableToPull PullOf(Batch* batch, Which which);
  worker::TableToPush PushOfDense(const Batch& batch);
  void CheckPull(const Batch& batch, const BatchPull& pull, std::uint64_t staleness);
  void PushDense(Batch* batch, TimeUs now, Outbox* out);
  void FinishTrain(Batch* batch, TimeUs now, Outbox* out);
  void PushSparse(Batch* batch, TimeUs now, Outbox* out);
  void ChangeRows(const Batch& batch, TimeUs now, Outbox* out);
  worker::Plan PlanOf(const TableSpec& spec, std::span<const Key> keys);
  void RequestLeases(TimeUs now, Outbox* out);
  void StartModel();
  void AdvanceProgram(TimeUs now, Outbox* out);
  std::vector<Buffer> EncodedState(CheckpointId checkpoint) const;
  void RecordTick(const Batch* batch);
  std::size_t SectionsOf(const std::map<Key, float>& sent) const;

  const Scenario& scenario_;
  worker::Client client_;
  Oracle* oracle_;
  Compute compute_;
  Tables tables_;
  std::optional<TopKModel> model_;  // if only the largest rows are pushed (top-k)
  Program program_;
  SimLeases leases_;
  std::deque<Batch> batches_;
  std::optional<Batch> pushed_;  // its sparse push was sent; its tick follows
  std::deque<EarlyPull> early_;  // the last one counts
  Clock next_clock_;
  std::deque<PushAcked> pushes_;  // unacknowledged ones, and all later ones
  worker::EvaluationStart evaluation_;
  std::uint64_t requests_saved_ = 0;  // reported to the oracle
};

}  // namespace tarn::sim
