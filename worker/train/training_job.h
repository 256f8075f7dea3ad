// The training job of a worker: the job from the scheduler, its data sets, its model, and the model's tables.
//
//   job.Begin(welcome.job_text, wake);          // opens the data on a separate thread
//   if (*job.TakeOpened()) job.MakeModel();     // then create the tables of job.uses(), with &job as the completion
//   job.tables_ready();                         // true when all exist
//
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/job/job.h"
#include "worker/client/completion.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/train/batch_reader.h"

namespace tarn::worker {

class TrainingJob final : public Completion<TableSpec> {
 public:
  TrainingJob() = default;
  // Stops the thread that opens data, and waits for its end.
  ~TrainingJob() { StopOpening(); }
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  // Parses the job. Starts to open its data on a thread: indexing a large file may take longer than `lease_seconds`.
  // `wake` is called on that thread at its end.
  Status Begin(const std::string& job_text, std::function<void()> wake);
  // Instead of Begin: takes the job and the open data of `other`, which may be in use.
  void Share(const TrainingJob& other);
  bool begun() const { return begun_; }
  // Returns true once, when the data sets are open, or the error of opening them; else false.
  Expected<bool> TakeOpened();
  // Asks the thread that opens data to end soon.
  void StopOpening() { stop_.request_stop(); }
  // Makes the model and sets uses(). kInvalidArgument: the job names no training file. Other errors are those of
  // worker::MakeModel.
  Status MakeModel();
  // Receives a created table of uses(), or an error.
  void Done(TableSpec table) override;
  void Failed(const Error& error) override;
  // The first error of a table.
  const Status& table_status() const { return table_status_; }
  bool tables_ready() const { return ready_tables_ == uses_.size() && !uses_.empty(); }

  const Job& job() const { return job_; }
  Model* model() const { return model_.get(); }
  const std::vector<TableUse>& uses() const { return uses_; }
  DatasetSet datasets() const { return {datasets_[0].get(), datasets_[1].get(), datasets_[2].get()}; }
  std::array<std::uint64_t, 3> rows() const;  // of the training, validation and test set

 private:
  Status OpenData();

  Job job_;
  bool begun_ = false;
  std::array<std::shared_ptr<const Dataset>, 3> datasets_;
  bool shared_ = false;  // Share was called, and TakeOpened has not returned true yet
  std::unique_ptr<Model> model_;
  std::vector<TableUse> uses_;
  std::size_t ready_tables_ = 0;
  Status table_status_;
  std::stop_source stop_;
  std::future<Status> opening_;  // its destructor waits for it
};

}  // namespace tarn::worker
