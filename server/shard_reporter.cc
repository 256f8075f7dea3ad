#include "server/shard_reporter.h"

#include <string>
#include <utility>

#include "core/json.h"

namespace tarn::server {
namespace {

constexpr TimeUs kPeriodUs = 1'000'000;

}  // namespace

void ShardReporter::Publish(TimeUs now, double unix_seconds, bool ready, MetricList metrics) {
  next_ = now + kPeriodUs;
  if (file_ != nullptr) {
    Json json = {{"time", unix_seconds}, {"role", "shard"}, {"rank", shard_.value}};
    metrics.WriteTo(&json);
    file_->Append({JsonText(json)});
  }
  if (feed_ == nullptr) return;
  feed_->Put(std::make_unique<StatusReport>(StatusReport{.role = "shard",
                                                         .rank = std::to_string(shard_.value),
                                                         .ready = ready,
                                                         .unix_seconds = unix_seconds,
                                                         .metrics = std::move(metrics)}));
}

}  // namespace tarn::server
