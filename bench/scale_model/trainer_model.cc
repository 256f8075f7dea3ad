#include "bench/scale_model/trainer_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tarn::scale {
namespace {

constexpr std::uint32_t kLeasesAhead = 2;  // as worker/train/lease_progress.h

}  // namespace

TrainerModel::TrainerModel(TrainerModelOptions options, Workload* workload, Meter* meter)
    : options_(std::move(options)), workload_(workload), meter_(meter), client_(options_.client) {}

void TrainerModel::Settle(TimeUs now, Outbox* out) {
  client_.Settle(now, out);
  Advance(now, out);
}

void TrainerModel::OnTimer(TimeUs now, Outbox* out) {
  client_.OnTimer(now, out);
  Advance(now, out);
}

void TrainerModel::TableRows::Done(std::uint64_t) { --batch_->waiting; }

void TrainerModel::Done(TableSpec table) {
  workload_->SetId(table);
  ++tables_ready_;
}

void TrainerModel::Done(LeaseReply reply) {
  lease_requested_ = false;
  for (const LeaseGrant& grant : reply.grants) leases_.push_back(grant);
  TARN_CHECK(!reply.finished, "a simulated run stops before the end of its data");
  if (reply.grants.empty()) jump_to_ = reply.jump_to;
}

void TrainerModel::Advance(TimeUs now, Outbox* out) {
  while (!done_at_tick_.empty() && done_at_tick_.begin()->first <= client_.acked_clock().value) {
    done_.push_back(done_at_tick_.begin()->second);
    done_at_tick_.erase(done_at_tick_.begin());
  }
  if (client_.state() != worker::ClientState::kRunning) return;
  if (options_.client.rank != 0 && !ready()) LearnTables();
  if (std::exchange(tables_requested_, true)) return;
  next_clock_ = client_.clock();
  if (options_.client.rank != 0) return;
  for (const worker::TableUse& use : workload_->tables()) client_.CreateTable(use.spec, this, now, out);
}

// Takes the ids of the tables from the view. The worker with rank 0 has created the tables.
void TrainerModel::LearnTables() {
  for (const TableSpec& spec : client_.view().tables) workload_->SetId(spec);
  tables_ready_ = client_.view().tables.size();
}

void TrainerModel::Turn(TimeUs now, Outbox* out) {
  if (!begun_ || !ready()) return;
  while (window_.size() < 1 + options_.prefetch && read_ > 0 && !leases_.empty()) {
    --read_;
    window_.push_back(NextBatch());
    StartPulls(&window_.back(), now, out);
  }
  RequestLeases(now, out);
}

TrainerModel::InFlight TrainerModel::NextBatch() {
  InFlight batch;
  batch.lease = leases_.front();
  if (offset_ == 0) offset_ = batch.lease.skip_rows;
  offset_ = std::min(offset_ + batch.lease.batch_rows, batch.lease.rows);
  batch.after = offset_;
  if (offset_ == batch.lease.rows) {
    leases_.pop_front();
    offset_ = 0;
  }
  batch.batch = options_.first_batch + taken_++;
  batch.clock = std::max(next_clock_, client_.clock());
  next_clock_ = batch.clock + 1;
  return batch;
}

void TrainerModel::StartPulls(InFlight* batch, TimeUs now, Outbox* out) {
  std::vector<worker::TableToPull> tables;
  for (std::size_t t = 0; t < workload_->tables().size(); ++t) {
    const worker::Plan& plan = workload_->plan(batch->batch, t);
    ++batch->waiting;
    tables.push_back({&plan, {.use = batch->clock}, &batch->rows.emplace_back(batch, plan)});
  }
  const std::size_t before = out->size();
  if (meter_ != nullptr) meter_->Begin();
  client_.Pull(tables, now, out);
  Measure(Work::kAsk, before, *out);
}

// Records the time of the last call as one sample, with the sum of the messages that it sent. Records nothing if it
// also sent other messages than pulls or pushes.
void TrainerModel::Measure(Work work, std::size_t before, const Outbox& out) {
  if (meter_ == nullptr) return;
  Sample sample{.ns = meter_->Lap()};
  for (std::size_t i = before; i < out.size(); ++i) {
    const Body& body = out[i].message.body;
    const auto* pull = std::get_if<Pull>(&body);
    const auto* push = std::get_if<Push>(&body);
    if (pull == nullptr && push == nullptr) return;  // a tick or a heartbeat was also sent
    const auto add = [&](const auto& part) {
      (workload_->dense(part.table) ? sample.amount.dense : sample.amount.rows) +=
          workload_->WorkRows(part.table, part.keys.count);
      ++sample.amount.tables;
    };
    if (pull != nullptr) std::ranges::for_each(pull->tables, add);
    if (push != nullptr) std::ranges::for_each(push->tables, add);
    ++sample.amount.messages;
  }
  sample.amount.other = sample.amount.messages * double(client_.view().routes.endpoints.size());
  if (sample.amount.messages > 0) meter_->Add(work, sample);
}

bool TrainerModel::FrontReady() const {
  return !window_.empty() && window_.front().waiting == 0 && window_.front().clock == client_.clock();
}

void TrainerModel::OnComputed(TimeUs now, Outbox* out) {
  const InFlight batch = std::move(window_.front());
  window_.pop_front();
  std::vector<worker::TableToPush> tables;
  for (std::size_t t = 0; t < workload_->tables().size(); ++t) {
    const worker::Plan& plan = workload_->plan(batch.batch, t);
    const std::size_t bytes = plan.keys.size() * plan.dim * sizeof(float);
    Buffer gradients = Buffer::Allocate(bytes);
    std::memset(gradients.data(), 0, bytes);
    tables.push_back({&plan, std::move(gradients), nullptr});
  }
  const std::size_t before = out->size();
  if (meter_ != nullptr) meter_->Begin();
  client_.Push(tables, batch.clock, now, out);
  Measure(Work::kPush, before, *out);
  position_ = {batch.lease.lease, batch.after};
  client_.TickTo(client_.clock() + 1, position_, nullptr, now, out);
  if (batch.after == batch.lease.rows) done_at_tick_[client_.clock().value] = LeaseDone{batch.lease.lease, {}};
}

void TrainerModel::RequestLeases(TimeUs now, Outbox* out) {
  if (lease_requested_) return;
  const bool drained = leases_.empty() && window_.empty();
  if (drained && jump_to_) {
    if (*jump_to_ > client_.clock()) client_.TickTo(*jump_to_, position_, nullptr, now, out);
    next_clock_ = client_.clock();
    jump_to_.reset();
  }
  const bool ahead = leases_.size() < kLeasesAhead && !jump_to_ && !drained;
  if (!ahead && !(drained && done_at_tick_.empty())) return;
  LeaseRequest request;
  request.want = kLeasesAhead;
  request.done = std::move(done_);
  done_.clear();
  request.rows[0] = options_.train_rows;
  lease_requested_ = true;
  client_.RequestLeases(std::move(request), this, now, out);
}

}  // namespace tarn::scale
