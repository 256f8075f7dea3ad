// Rows that a worker keeps of what it has pulled, by table: what a pull can be answered from, what of a reply is kept,
// and what goes when its worker pushes. Rules H1 to H5 of docs/protocol.md. Internal to worker/; one thread.
//
// Why a kept row keeps the bound: a row of version v came from a shard whose minimum clock was v, so it holds every
// push of every live worker of clocks < v (C2, C3). It answers a pull of clock c only if v >= c - s, so the pull sees
// every push of clocks < c - s: what the shard itself would have promised. Time, route maps and deaths of workers take
// nothing out of a row, so nothing but age can make it wrong; R6 (a row that expires) is the exception, and obeys the
// same bound.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "worker/client/client_context.h"
#include "worker/client/completion.h"
#include "worker/client/plan.h"
#include "worker/client/pulled_rows.h"
#include "worker/client/row_cache.h"

namespace tarn::worker {

class ClientPushes;

// The oldest version that a pull for use at `use` may be answered with (rule H1). Tables of `asp` keep no rows.
Clock OldestAllowed(const ConsistencySpec& consistency, Clock use);

// Whether kept rows go when their worker pushes (rule H4). An aggregated table shows nobody's pushes before their clock
// is over, the worker's own neither.
bool SeesOwnPushes(const ConsistencySpec& consistency, OwnPushes own_pushes);

// The kept rows of one table.
struct KeptTable {
  RowCache rows;
  bool sees_own_pushes;          // what its worker pushes is dropped, and what was asked for before is not kept
  std::vector<Sequence> pushed;  // by partition: of the last own push of this table
};

// A pull of which the cache had some rows: takes the others as replies bring them, keeps them, and hands all of them to
// the caller's sink at the end.
class CachedPull final : public PullSink {
 public:
  // Looks for the rows of the plan; those of versions before `least` are not used.
  CachedPull(KeptTable* table, const Plan& plan, Clock least, PullSink* caller);

  const RowCache::Found& found() const { return found_; }
  std::uint64_t StalenessAt(Clock use) const;       // of the rows found
  const Plan& missing() const { return missing_; }  // the rows that were not found, as a plan of its own

  // Of missing().
  void Rows(const PulledRows& rows) override { fetched_.Take(rows); }
  // The rows of `parts` are here: they are of `version`, and contain the worker's own pushes that `sections` name.
  void Keep(std::span<const PlanRun> parts, std::span<const Section> sections, Clock version);
  void Done(std::uint64_t staleness) override;
  void Failed(const Error& error) override { caller_->Failed(error); }

 private:
  KeptTable* table_;
  Clock least_;
  PullSink* caller_;
  std::size_t plan_rows_;
  std::uint32_t dim_;
  Buffer rows_;                        // of the whole plan, in its order
  std::vector<std::uint32_t> places_;  // of the missing rows in it
  RowCache::Found found_;
  Plan missing_;
  PlanRows fetched_;
};

class ClientCache {
 public:
  explicit ClientCache(ClientContext* context) : context_(context) {}

  // After Welcome: the job and the number of partitions are known.
  void Begin(std::size_t partitions);

  // Null: rows of this table are not kept.
  KeptTable* Of(const TableSpec& spec) { return on_ ? Find(spec) : nullptr; }

  // Looks for the rows of a pull for use at `use`.
  std::unique_ptr<CachedPull> Look(KeptTable* table, const TableSpec& spec, const Plan& plan, Clock use,
                                   PullSink* caller);

  // This push of the table has its sequences.
  void OnPush(KeptTable* table, const Plan& plan, const ClientPushes& pushes);

  void Clear();
  // Whether there is anything to forget: how much was kept is in the counters.
  std::uint64_t Hash() const;

 private:
  KeptTable* Find(const TableSpec& spec);

  ClientContext* context_;
  bool on_ = false;  // some table of the job keeps rows
  std::size_t partitions_ = 0;
  std::map<TableId, std::unique_ptr<KeptTable>> tables_;  // null: does not
};

}  // namespace tarn::worker
