#include "worker/runtime/requests.h"

#include <algorithm>

#include "core/log.h"

namespace tarn::worker {

PullRequest::Part::Part(PullRequest* whole, Table table)
    : whole_(whole), table_(std::move(table)), kept_(*table_.plan) {}

void PullRequest::Part::Copy(const PulledRows& rows, float* to) const {
  if (in_plan_order())
    CopyToPlanOrder(rows, plan().dim, to);
  else
    CopyToCallerOrder(rows, plan().dim, table_.order, to);
}

void PullRequest::Part::Rows(const PulledRows& rows) {
  if (table_.out != nullptr) {
    const std::lock_guard lock(whole_->out_mutex_);
    if (!whole_->detached_) Copy(rows, table_.out);
    return;
  }
  if (in_plan_order()) return kept_.Take(rows);
  if (ordered_.empty()) ordered_ = Buffer::Allocate(row_count() * plan().dim * sizeof(float));
  Copy(rows, ordered_.as_mutable<float>().data());
}

void PullRequest::Part::Done(std::uint64_t staleness) {
  staleness_ = staleness;
  if (!in_plan_order() && !table_.order.repeats.empty()) {
    const std::lock_guard lock(whole_->out_mutex_);
    float* const to = table_.out != nullptr ? table_.out : ordered_.as_mutable<float>().data();
    if (table_.out == nullptr || !whole_->detached_) CopyRepeats(plan().dim, table_.order, to);
  }
  whole_->OnEnd({ErrorCode::kOk, ""});
}

std::span<const float> PullRequest::Part::rows() const {
  if (table_.out != nullptr) return {table_.out, row_count() * plan().dim};
  return (in_plan_order() ? kept_.values() : ordered_).as<float>();
}

PullRequest::PullRequest(std::vector<Table> tables, std::optional<Clock> use, int priority)
    : use_(use), priority_(priority), waiting_(tables.size()) {
  parts_.reserve(tables.size());
  for (Table& table : tables) parts_.emplace_back(this, std::move(table));
  ExpectReader();
}

void PullRequest::Start(Client* client, TimeUs now, Outbox* out) {
  if (parts_.empty()) return Finish();
  const PullWhen when{.use = use_.value_or(client->clock()), .priority = priority_};
  std::vector<TableToPull> tables;
  tables.reserve(parts_.size());
  for (Part& part : parts_) tables.push_back({&part.plan(), when, &part});
  client->Pull(tables, now, out);
}

void PullRequest::OnEnd(const Error& error) {
  if (failure_.code == ErrorCode::kOk) failure_ = error;
  if (--waiting_ == 0) Finish(failure_);
}

void PullRequest::Detach() {
  const std::lock_guard lock(out_mutex_);
  detached_ = true;
}

PushRequest::~PushRequest() {
  static LogLimiter limiter;
  if (const Error* error = unread_error(); error != nullptr && error->code == ErrorCode::kInvalidArgument)
    LogWarning(limiter, "a push was dropped: {}; nothing waits for it", error->message);
}

void PushRequest::OnEnd(const Error& error) {
  if (failure_.code == ErrorCode::kOk) failure_ = error;
  if (--waiting_ == 0) Finish(failure_);
}

void PushRequest::Start(Client* client, TimeUs now, Outbox* out) {
  if (tables_.empty()) return Finish();
  const Clock pulled = pulled_.value_or(client->clock());
  std::vector<TableToPush> tables;
  tables.reserve(tables_.size());
  for (Table& table : tables_) tables.push_back({&*table.plan, std::move(table.gradients), this});
  client->Push(tables, pulled, now, out);
}

}  // namespace tarn::worker
