// The worker's cache of pulled rows, by table: answers pulls from cached rows, adds the rows of replies, and drops rows
// that its worker pushes. Rules H1 to H5 of docs/protocol.md. Internal to worker/; one thread.
//
// Why cached rows respect the staleness bound s: a row of version v comes from a shard whose minimum clock was v, so it
// contains all pushes of live workers for clocks < v (C2, C3). It answers a pull of clock c only if v >= c - s, so the
// pull sees all pushes of clocks < c - s, which is what a shard guarantees. New route maps and deaths of workers remove
// no push from a row. Rows that expire (R6) obey the same bound.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/client/client_context.h"
#include "worker/client/completion.h"
#include "worker/client/plan.h"
#include "worker/client/pull_memory.h"
#include "worker/client/pulled_rows.h"
#include "worker/client/row_cache.h"

namespace tarn::worker {

class ClientPushes;

// The oldest version that may answer a pull for use at `use` (rule H1). Tables in `asp` are not cached.
Clock OldestAllowed(const ConsistencySpec& consistency, Clock use);

// Whether cached rows are dropped when their worker pushes them (rule H4). False for aggregated tables: a push has no
// visible effect before its clock closes.
bool SeesOwnPushes(const ConsistencySpec& consistency, OwnPushes own_pushes);

// The cached rows of one table.
struct CachedTable {
  RowCache rows;
  bool sees_own_pushes;          // drop rows that the worker pushes or that it requested before the push
  std::vector<Sequence> pushed;  // by partition: sequence of the worker's last push to this table

  // Whether the worker pushed to this partition after section.sequence, and pulls must include that push. Rows of such
  // a reply must not be cached.
  bool MissesOwnPushes(const Section& section) const {
    return sees_own_pushes && section.sequence < pushed[section.partition.value];
  }
};

// The sink of a pull whose rows are cached.
class CachingSink : public PullSink {
 public:
  virtual ~CachingSink() = default;
  // Caches the received rows of `parts`, which have `version` and contain the worker's own pushes that `sections` name.
  virtual void Cache(std::span<const PlanRun> parts, std::span<const Section> sections, Clock version) = 0;
};

// A pull for which the cache has some rows. Receives the others from replies, caches them, and passes all rows to the
// caller's sink at the end.
class CachedPull final : public CachingSink {
 public:
  // Reads the rows of the plan from the cache, except those of versions before `oldest_version`.
  CachedPull(CachedTable* table, const Plan& plan, Clock oldest_version, PullSink* caller);
  // Also records all rows in `record` when they are passed to the caller.
  void RecordIn(std::shared_ptr<PullRecord> record) { record_ = std::move(record); }

  const RowCache::Found& found() const { return found_; }
  std::uint64_t StalenessAt(Clock use) const;       // staleness of the rows found
  const Plan& missing() const { return missing_; }  // the rows not found, as a separate plan

  // Rows of missing().
  void Rows(const PulledRows& rows) override { fetched_.Take(rows); }
  void Cache(std::span<const PlanRun> parts, std::span<const Section> sections, Clock version) override;
  void Done(std::uint64_t staleness) override;
  void Failed(const Error& error) override { caller_->Failed(error); }

 private:
  CachedTable* table_;
  Clock oldest_version_;
  PullSink* caller_;
  std::size_t plan_rows_;
  std::uint32_t dim_;
  Buffer rows_;                        // all rows of the plan, in its order
  std::vector<std::uint32_t> places_;  // indices of the missing rows in the plan
  RowCache::Found found_;
  Plan missing_;
  PlanRows fetched_;
  std::shared_ptr<PullRecord> record_;
};

class ClientCache {
 public:
  explicit ClientCache(ClientContext* context) : context_(context) {}

  // After Welcome: the job and the number of partitions are known.
  void Begin(std::size_t partitions);

  // The cache of a table. Null: the table is not cached.
  CachedTable* Of(const TableSpec& spec) { return on_ ? Find(spec) : nullptr; }

  // Looks up the rows of a pull for use at `use`.
  std::unique_ptr<CachedPull> Look(CachedTable* table, const TableSpec& spec, const Plan& plan, Clock use,
                                   PullSink* caller);

  // Drops the pushed rows if the table sees own pushes. Call it once a push to this table has its sequences.
  void OnPush(CachedTable* table, const Plan& plan, const ClientPushes& pushes);

  void Clear();
  // Hash of the numbers of rows looked up and found, to compare runs.
  std::uint64_t Hash() const;

 private:
  CachedTable* Find(const TableSpec& spec);

  ClientContext* context_;
  bool on_ = false;  // some table of the job is cached
  std::size_t partitions_ = 0;
  std::map<TableId, std::unique_ptr<CachedTable>> tables_;  // null: the table is not cached
};

}  // namespace tarn::worker
