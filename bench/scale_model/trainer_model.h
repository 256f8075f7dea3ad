// The training loop of worker/train/trainer.h around the real worker::Client, without data, arithmetic and threads:
// batches come from a Workload, and the caller determines durations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bench/scale_model/meter.h"
#include "bench/scale_model/workload.h"
#include "worker/client/client.h"
#include "worker/client/completion.h"
#include "worker/client/pulled_rows.h"

namespace tarn::scale {

struct TrainerModelOptions {
  worker::ClientOptions client;
  std::uint32_t prefetch = 2;     // Job::train.prefetch
  std::uint64_t train_rows = 0;   // of the data set
  std::uint64_t first_batch = 0;  // of the workload
};

class TrainerModel final : private worker::Completion<TableSpec>, private worker::Completion<LeaseReply> {
 public:
  TrainerModel(TrainerModelOptions options, Workload* workload, Meter* meter);

  void Start(TimeUs now, Outbox* out) { client_.Start(now, out); }
  // For each turn of the loop: Handle for each message, then Settle.
  void Handle(Peer from, Message message, TimeUs now) { client_.Handle(from, std::move(message), now); }
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  // Whether it has its tables and waits for Begin.
  bool ready() const {
    return client_.state() == worker::ClientState::kRunning && tables_ready_ == workload_->tables().size();
  }
  void Begin() { begun_ = true; }
  // The rest of a turn after its messages: starts pulls, requests leases.
  void Turn(TimeUs now, Outbox* out);

  // The reader's thread: whether a batch must be read, and the end of its read.
  bool WantsRead() const { return begun_ && !leases_.empty() && read_ < std::max(1u, options_.prefetch); }
  void OnRead() { ++read_; }
  // The computation: whether the next batch has its rows, and the end of its training.
  bool FrontReady() const;
  void OnComputed(TimeUs now, Outbox* out);

  const worker::Client& client() const { return client_; }
  std::uint32_t batch_rows() const { return workload_->batch_rows(); }

 private:
  struct InFlight;
  // Receives the rows of one table of a batch, like the training loop.
  class TableRows final : public worker::PullSink {
   public:
    TableRows(InFlight* batch, const worker::Plan& plan) : batch_(batch), rows_(plan) {}
    void Rows(const worker::PulledRows& rows) override { rows_.Take(rows); }
    void Done(std::uint64_t staleness) override;
    void Failed(const Error& error) override { TARN_CHECK(false, error.message.c_str()); }

   private:
    InFlight* batch_;
    worker::PlanRows rows_;
  };
  struct InFlight {
    LeaseGrant lease;
    std::uint64_t after = 0;  // rows of the lease up to the end of this batch
    std::size_t batch = 0;
    Clock clock;
    std::deque<TableRows> rows;
    std::size_t waiting = 0;  // number of tables whose rows have not arrived
  };

  void Done(TableSpec table) override;
  void Done(LeaseReply reply) override;
  void Failed(const Error& error) override { TARN_CHECK(false, error.message.c_str()); }
  void Advance(TimeUs now, Outbox* out);
  void LearnTables();
  void StartPulls(InFlight* batch, TimeUs now, Outbox* out);
  void RequestLeases(TimeUs now, Outbox* out);
  InFlight NextBatch();
  void Measure(Work work, std::size_t before, const Outbox& out);

  TrainerModelOptions options_;
  Workload* workload_;
  Meter* meter_;
  worker::Client client_;
  bool tables_requested_ = false, begun_ = false, lease_requested_ = false;
  std::size_t tables_ready_ = 0;
  std::deque<LeaseGrant> leases_;
  std::uint64_t offset_ = 0;  // in leases_.front()
  std::uint32_t read_ = 0;    // batches that are read and not taken yet
  std::uint64_t taken_ = 0;   // batches taken from the reader so far
  std::deque<InFlight> window_;
  Clock next_clock_;
  DataPosition position_;
  std::vector<LeaseDone> done_;  // for the next lease request
  // By clock: trained leases, which are done when the tick to this clock is acknowledged.
  std::map<std::uint64_t, LeaseDone> done_at_tick_;
  std::optional<Clock> jump_to_;
};

}  // namespace tarn::scale
