// The rows of the batches in flight: asked for when a batch enters the pipeline, kept together until all are here, and
// given back once its gradients are on their way. Rows come from servers, or, with train.hot_rows, from what the worker
// keeps of sparse tables, where it computes: then only what is missing there is asked for.
//
//   stage->Begin(plans, use, train, now, &out, &rows);   // until rows.ready(), the client brings them
//   stage->Read(&rows, stream);                          // rows.values and rows.placed are complete
//   stage->End(&rows, pushed);                           // once nobody computes with them
//
// One thread, which takes the client's turns too.
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
#include "worker/train/hot_table.h"
#include "worker/train/row_place.h"
#include "worker/train/trace.h"

namespace tarn::worker {

class PullStage;
struct BatchRows;

// Takes the rows of one table of a batch from the client.
class TablePull final : public PullSink {
 public:
  // Of the plan that is asked for.
  TablePull(PullStage* stage, BatchRows* batch, std::size_t table, const Plan& plan)
      : stage_(stage), batch_(batch), table_(table), rows_(plan) {}
  void Rows(const PulledRows& rows) override { rows_.Take(rows); }
  void Done(std::uint64_t staleness) override;
  void Failed(const Error& error) override;

 private:
  PullStage* stage_;
  BatchRows* batch_;
  std::size_t table_;
  PlanRows rows_;
};

// The rows of one batch. It stays where it is while rows are waited for.
struct BatchRows {
  std::vector<const Plan*> plans;    // by table of the model, as all below
  std::vector<Buffer> values;        // rows of the plan x dim, once they are read, of tables that keep none
  std::vector<const float*> placed;  // of the others, where the model computes, until End; else null
  std::deque<TablePull> pulls;       // of the tables of which something is asked for
  std::vector<HotBatch> hot;         // of tables that keep rows
  std::size_t waiting = 0;           // pulls without an answer
  Clock use;
  Trace::SteadyClock::time_point asked_at;

  bool ready() const { return waiting == 0; }
};

class PullStage {
 public:
  // The client outlives the stage; `uses` have ids. Errors: the job keeps rows of a table twice, or there is no memory
  // for them.
  static Expected<std::unique_ptr<PullStage>> Make(const Job& job, std::span<const TableUse> uses,
                                                   std::uint32_t partition_bits, Client* client, Trace* trace);

  // Asks for the rows of a batch that will be used at clock `use`, to train or to evaluate. `plans` has those of sparse
  // tables, and stays until End. When an evaluation begins, with no batch in flight, all kept rows go (rule H5).
  Status Begin(std::span<const Plan> plans, Clock use, bool train, TimeUs now, Outbox* out, BatchRows* rows);
  // Why a pull has failed, or its rows could not be kept: then its batch is never ready.
  const Status& status() const { return status_; }
  // Batches are read in the order in which they began, and end in it. `user` is the stream that computes with the rows:
  // it is behind them from here on. Null: the CPU computes.
  Status Read(BatchRows* rows, kernels::Stream* user);
  // What computes with the rows is over and was waited for. `pushed`: the gradients of all of them were given to the
  // client.
  void End(BatchRows* rows, bool pushed);

  std::uint64_t hot_looked_for() const;  // rows
  std::uint64_t hot_found() const;
  // Seconds in which any pull was under way.
  double busy_seconds() const;

 private:
  friend class TablePull;

  PullStage(Client* client, Trace* trace) : client_(client), trace_(trace) {}
  Status MakeHotTables(const Job& job, std::span<const TableUse> uses);
  Status Ask(std::size_t table, TimeUs now, Outbox* out, BatchRows* rows);
  void DropKeptRows();
  void Arrive(BatchRows* rows, std::size_t table, Buffer values, std::uint64_t staleness);
  void NoteError(Error error);
  void Complete(BatchRows* rows);

  Client* client_;
  Trace* trace_;
  std::unique_ptr<RowPlace> place_;             // of hot rows; null without
  std::vector<Plan> dense_plans_;               // by table; empty where sparse
  std::vector<std::unique_ptr<HotTable>> hot_;  // by table; null where no rows are kept
  std::vector<std::vector<HotBatch>> spare_;    // memory of batches that have ended
  EvaluationStart evaluation_;
  Status status_;
  std::size_t batches_waiting_ = 0;
  Trace::SteadyClock::time_point busy_since_;  // if batches wait
  double busy_seconds_ = 0;
};

}  // namespace tarn::worker
