// The rows of the batches in flight: requested when a batch enters the pipeline, collected until all have arrived, and
// released after its gradients are pushed. Rows come from servers or, with train.hot_rows, from the worker's cache on
// its device; then only missing rows are requested.
//
//   stage->Begin(plans, use, train, now, &out, &rows);   // the rows arrive in turns of the client, until rows.ready()
//   stage->Read(&rows, stream);                          // rows.values and rows.placed are complete
//   stage->End(&rows, pushed, now, &out);                // when no computation uses them
//
// Batches are pulled ahead of the one that is computed. Where pulls include the worker's own pushes (own_pushes =
// "seen", rule C3), a row that a batch in flight has yet to push is requested when that batch has been pushed, so that
// pulling ahead never misses the worker's own update (unpushed_rows.h). Tables with hot rows are the exception.
//
// One thread, which also executes the client's turns.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/job/job.h"
#include "core/message.h"
#include "worker/client/client.h"
#include "worker/client/evaluation_start.h"
#include "worker/client/plan.h"
#include "worker/client/pulled_rows.h"
#include "worker/models/model.h"
#include "worker/train/busy_time.h"
#include "worker/train/hot_tables.h"
#include "worker/train/trace.h"
#include "worker/train/unpushed_rows.h"

namespace tarn::worker {

class PullStage;
struct BatchRows;

// Takes rows of one table of a batch from the client.
class TableSink final : public PullSink {
 public:
  // `plan` is requested: all rows of the batch if `places` is empty, or those at these indices in the batch's plan.
  TableSink(PullStage* stage, BatchRows* batch, std::size_t table, const Plan& plan, std::vector<std::uint32_t> places)
      : stage_(stage), batch_(batch), table_(table), places_(std::move(places)), rows_(plan) {}
  void Rows(const PulledRows& rows) override { rows_.Take(rows); }
  void Done(std::uint64_t staleness) override;
  void Failed(const Error& error) override;

 private:
  PullStage* stage_;
  BatchRows* batch_;
  std::size_t table_;
  std::vector<std::uint32_t> places_;
  PlanRows rows_;
};

// The rows of one batch. It must not move while rows are pending.
struct BatchRows {
  std::vector<const Plan*> plans;              // by table of the model, as all below
  std::vector<Buffer> values;                  // rows of the plan x dim after Read, for tables without hot rows
  std::vector<const float*> placed;            // for tables with hot rows: on the model's device, until End; else null
  std::deque<TableSink> pulls;                 // of the tables of which rows are requested
  std::vector<HotBatch> hot;                   // of tables with hot rows
  std::vector<std::uint64_t> parts_staleness;  // of tables whose rows are requested in parts: the largest so far
  std::vector<bool> in_parts;
  std::uint64_t number = 0;  // of a training batch: 1, 2, ...
  std::size_t waiting = 0;   // pulls without an answer, including those that are not requested yet
  Clock use;
  Trace::SteadyClock::time_point begun_at;

  bool ready() const { return waiting == 0; }
};

class PullStage {
 public:
  // The client outlives the stage; `uses` have ids. Errors: a table has both caches, there is too little memory, or the
  // GPU cannot be used.
  static Expected<std::unique_ptr<PullStage>> Make(const Job& job, std::span<const TableUse> uses,
                                                   std::uint32_t partition_bits, Client* client, Trace* trace);

  // Requests the rows of a batch that will be used at clock `use`, for training or evaluation. `plans` has the plans of
  // sparse tables and must stay valid until End. When an evaluation starts, with no batch in flight, all cached rows
  // are dropped (rule H5).
  Status Begin(std::span<const Plan> plans, Clock use, bool train, TimeUs now, Outbox* out, BatchRows* rows);
  // The error of a failed pull, or of rows that could not be cached; the batch is then never ready.
  const Status& status() const { return status_; }
  // Batches are read and ended in the order in which they began. `user` is the stream that computes with the rows; its
  // later operations run after the rows are in place. Null: the CPU computes.
  Status Read(BatchRows* rows, kernels::Stream* user);
  // Call it after the computation with the rows is complete. `pushed`: the gradients of all of them were passed to the
  // client. Requests the rows of later batches that waited for these.
  void End(BatchRows* rows, bool pushed, TimeUs now, Outbox* out);

  // How many training batches have begun, and how many have ended.
  std::uint64_t begun() const { return begun_; }
  std::uint64_t ended() const { return ended_; }
  const HotTables& hot() const { return hot_; }
  // Seconds with a pull in progress.
  double busy_seconds() const { return busy_.Seconds(Trace::SteadyClock::now()); }

 private:
  friend class TableSink;

  PullStage(Client* client, Trace* trace) : client_(client), trace_(trace) {}
  // Rows of a batch that are requested when batch `part.after` has ended.
  struct Later {
    BatchRows* rows;
    std::size_t table;
    UnpushedRows::Part part;
  };

  void MakeUnpushedRows(const Job& job, std::span<const TableUse> uses);
  // These add to requests_.
  Status PullTable(std::size_t table, bool train, BatchRows* rows);
  void NoteFound(std::size_t table, const BatchRows& rows);
  void PullInParts(std::size_t table, BatchRows* rows);
  void Request(std::size_t table, UnpushedRows::Part part, BatchRows* rows);
  void RequestLater(TimeUs now, Outbox* out);
  void Send(TimeUs now, Outbox* out);
  void DropCachedRows();
  void Arrive(BatchRows* rows, std::size_t table, Buffer values, std::uint64_t staleness);
  void ArrivePart(BatchRows* rows, std::size_t table, std::span<const std::uint32_t> places, const Buffer& values,
                  std::uint64_t staleness);
  void NoteError(Error error);
  void Complete(BatchRows* rows);

  Client* client_;
  Trace* trace_;
  HotTables hot_;
  std::vector<Plan> dense_plans_;  // by table; empty where sparse
  // By table; null where a pull need not wait for a push of this worker.
  std::vector<std::unique_ptr<UnpushedRows>> unpushed_;
  std::vector<UnpushedRows::Part> parts_;  // scratch
  std::vector<TableToPull> requests_;      // of the current call
  std::deque<Plan> requested_parts_;       // of requests_
  std::vector<Later> later_;
  std::uint64_t begun_ = 0, ended_ = 0;  // training batches
  EvaluationStart evaluation_;
  Status status_;
  BusyTime busy_;  // with a batch that waits for rows
};

}  // namespace tarn::worker
