#include "worker/train/training_job.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "core/log.h"

namespace tarn::worker {

Status TrainingJob::Begin(const std::string& job_text, std::function<void()> wake) {
  auto job = ParseJob(job_text, "the scheduler's job", "/");
  if (!job) return std::unexpected(job.error());
  job_ = std::move(*job);
  begun_ = true;
  opening_ = std::async(std::launch::async, [this, wake = std::move(wake)] {
    Status status = OpenData();
    wake();
    return status;
  });
  return {};
}

Status TrainingJob::OpenData() {
  const DataSection& data = job_.data;
  const std::string* names[3] = {&data.train, &data.valid, &data.test};
  for (std::size_t i = 0; i < 3; ++i) {
    if (names[i]->empty()) continue;
    DatasetOptions options;
    if (i == 0) options.limit_rows = data.limit_rows;
    options.stop = stop_.get_token();
    options.report_malformed = [](const std::string& message) { LogWarning("malformed line: {}", message); };
    auto set = Dataset::Open(data, *names[i], options);
    if (!set) return std::unexpected(set.error());
    datasets_[i] = std::move(*set);
  }
  return {};
}

void TrainingJob::Share(const TrainingJob& other) {
  job_ = other.job_;
  datasets_ = other.datasets_;
  begun_ = shared_ = true;
}

Expected<bool> TrainingJob::TakeOpened() {
  if (std::exchange(shared_, false)) return true;
  if (!opening_.valid() || opening_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  TARN_RETURN_IF_ERROR(opening_.get());
  return true;
}

Status TrainingJob::MakeModel() {
  if (datasets_[0] == nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                "the job names no training file: set data.train, or give the program that trains in its place: "
                "tools/launch JOB.toml -- PROGRAM [ARGUMENT...]");
  // Only the sets of images have sizes of their own.
  for (const Dataset* other : {datasets_[1].get(), datasets_[2].get()})
    if (other != nullptr && other->dense_columns() != datasets_[0]->dense_columns())
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} has {} values a row, but {} has {}: all sets of a job must have rows of one size",
                              other == datasets_[1].get() ? job_.data.valid : job_.data.test, other->dense_columns(),
                              job_.data.train, datasets_[0]->dense_columns()));
  auto model = worker::MakeModel(
      job_,
      {.fields = datasets_[0]->fields(), .dense_columns = datasets_[0]->dense_columns(), .classes = job_.data.classes});
  if (!model) return std::unexpected(model.error());
  model_ = std::move(*model);
  uses_ = model_->tables();
  for (TableUse& use : uses_) use.spec.pushes = PushesOf(job_.local);
  return {};
}

void TrainingJob::Done(TableSpec table) {
  for (TableUse& use : uses_)
    if (use.spec.name == table.name) use.spec = table;
  ++ready_tables_;
}

void TrainingJob::Failed(const Error& error) {
  if (table_status_) table_status_ = std::unexpected(error);
}

std::array<std::uint64_t, 3> TrainingJob::rows() const {
  std::array<std::uint64_t, 3> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = datasets_[i] ? datasets_[i]->rows() : 0;
  return rows;
}

}  // namespace tarn::worker
