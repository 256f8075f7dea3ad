#include "bench/scale_model/shard_work.h"

#include <algorithm>
#include <variant>

namespace tarn::scale {

void ShardWork::Begin(const Body& body, const Extent& extent, bool counts, Outbox* out) {
  if (const auto* push = std::get_if<Push>(&body)) {
    Contributions& c = buckets_[push->clock];
    double sections = 0;
    for (const PushPart& part : push->tables) sections += double(part.keys.sections.size());
    c.count += std::max(sections, extent.copies) * extent.part;
    c.sparse_rows += extent.rows * extent.part;
    c.dense_rows += extent.dense * extent.dense_part;
  }
  extra_ns_ = 0;
  observed_ = false;
  counts_ = counts;
  out_ = out;
}

void ShardWork::OnClockClosed(Clock clock) {
  observed_ = true;
  const Contributions c = buckets_[clock];
  buckets_.erase(buckets_.begin(), buckets_.upper_bound(clock));
  const Amount amount{c.count, c.sparse_rows, c.dense_rows,
                      c.sparse_rows * workload_->DistinctShare(options_->workers)};
  if (meter_ != nullptr) {
    if (counts_ && c.count > 0) meter_->Add(Work::kClose, {amount, meter_->Lap()});
  } else if (!options_->free) {
    extra_ns_ += (*costs_)[Work::kClose](amount);
  }
}

void ShardWork::OnPullServed(WorkerRank, Incarnation, const Pull&, Clock) {
  observed_ = true;
  if (meter_ == nullptr || !counts_) return;
  const auto& reply = std::get<PullReply>(out_->back().message.body);
  Amount amount{.messages = 1, .tables = double(reply.tables.size())};
  for (const ReplyPart& part : reply.tables)
    (workload_->dense(part.table) ? amount.dense : amount.rows) += workload_->WorkRows(part.table, part.count);
  meter_->Add(Work::kServe, {amount, meter_->Lap()});
}

void ShardWork::Measure(const Body& body, const Extent& extent) {
  const Sample sample{{.messages = 1, .rows = extent.rows, .dense = extent.dense, .tables = extent.tables},
                      meter_->Lap()};
  if (!counts_ || observed_) return;
  if (std::holds_alternative<Pull>(body)) meter_->Add(Work::kPark, sample);
  if (std::holds_alternative<Tick>(body)) meter_->Add(Work::kShardTick, sample);
  if (std::holds_alternative<Push>(body)) {
    const bool aggregated = workload_->tables().front().spec.consistency.apply == ApplyMode::kAggregated;
    meter_->Add(aggregated ? Work::kGather : Work::kApply, sample);
  }
}

}  // namespace tarn::scale
