#include "worker/client/row_refresher.h"

#include <algorithm>
#include <utility>

#include "core/position.h"
#include "kernels/convert.h"

namespace tarn::worker {

// The sink of a standing pull: its rows replace older ones in the cache, reply by reply.
class RefreshSink final : public CachingSink {
 public:
  RefreshSink(CachedTable* cached, std::shared_ptr<const Plan> plan, RowRefresher::Table* table, ClientContext* context)
      : cached_(cached), plan_(std::move(plan)), table_(table), context_(context) {}

  void Rows(const PulledRows& rows) override {
    rows_.resize(rows.values.size() / CodecRowBytes(rows.codec, plan_->dim) * plan_->dim);
    kernels::DecodeRows(rows.codec, plan_->dim, rows_.size() / plan_->dim, rows.values.data(), rows_.data());
  }
  void Cache(std::span<const PlanRun> parts, std::span<const Section> sections, Clock version) override {
    const float* rows = rows_.data();
    for (std::size_t i = 0; i < parts.size(); rows += std::size_t{parts[i].count} * plan_->dim, ++i) {
      if (cached_->MissesOwnPushes(sections[i])) continue;
      const auto keys = std::span(plan_->keys).subspan(parts[i].begin, parts[i].count);
      context_->counters.refreshed_rows += cached_->rows.Renew(keys, rows, version);
    }
  }
  void Done(std::uint64_t) override { table_->waiting = false; }
  void Failed(const Error&) override { table_->waiting = false; }

 private:
  CachedTable* cached_;
  std::shared_ptr<const Plan> plan_;
  RowRefresher::Table* table_;
  ClientContext* context_;
  std::vector<float> rows_;  // of the last reply
};

void RowRefresher::NoteOpen(const TableSpec& spec, Clock open) {
  if (cache_->Of(spec) == nullptr || !WorkerCacheOf(context_->job_file, spec.name).refresh_rows) return;
  Table& table = tables_[spec.id];
  table.open = std::max(table.open, open);
}

void RowRefresher::Dispatch() {
  if (stopped_) return;
  for (auto& [id, table] : tables_) {
    if (table.waiting || table.open == table.asked) continue;
    const TableSpec& spec = context_->tables.at(id);
    Start(spec, cache_->Of(spec), &table);
  }
}

void RowRefresher::Start(const TableSpec& spec, CachedTable* cached, Table* table) {
  if (table->version != cached->rows.keys_version()) {
    table->version = cached->rows.keys_version();
    keys_.clear();
    cached->rows.AppendKeys(&keys_);
    const std::uint64_t salt = TableSalt(context_->job_file.job.seed, spec.name);
    auto plan = std::make_shared<Plan>();
    Planner(context_->view.routes.partition_bits).Make(spec.id, spec.dim, Positioner(spec, salt), keys_, plan.get());
    table->plan = std::move(plan);
  }
  if (table->plan->keys.empty()) return;
  table->asked = table->open;
  table->waiting = true;
  // The first clock whose pulls a shard parks at the known open clock. Refreshed tables have no staleness range.
  const Clock use(table->open.value + spec.consistency.staleness + 1);
  ask_(spec, *table->plan, use, std::make_unique<RefreshSink>(cached, table->plan, table, context_));
}

}  // namespace tarn::worker
