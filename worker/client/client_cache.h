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

#include "worker/client/client_desk.h"
#include "worker/client/plan.h"
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

// What a pull that was looked for in the cache needs until its last answer is here.
class CachedPull {
 public:
  CachedPull(KeptTable* table, const Plan& plan, Clock least);

  // Looks for the rows of the plan.
  RowCache::Found Read(const Plan& plan);
  // The part of `plan` that was not found; empty if all was. After Read.
  Plan Missing(const Plan& plan) const { return PartOf(plan, missing_); }

  // An answer to a part of what was missing: `values` are the rows of the missing plan, of which `parts` belong to the
  // sections of `keys`.
  void Keep(const KeyList& keys, const Buffer& frame, std::span<const PlanRun> parts, const Buffer& values,
            Clock version);
  // All rows in the plan's order, once those that were missing are all here.
  Buffer Join(Buffer missing);
  // Of a plan of which nothing was missing.
  Buffer TakeRows() { return std::move(rows_); }

  std::uint64_t staleness = 0;  // of the rows found

 private:
  KeptTable* table_;
  Clock least_;
  std::uint32_t dim_;
  Buffer rows_;                         // in the plan's order; those found are in their places
  std::vector<std::uint32_t> missing_;  // places of the others
};

class ClientCache {
 public:
  explicit ClientCache(ClientDesk* desk) : desk_(desk) {}

  // After Welcome: the job and the number of partitions are known.
  void Begin(std::size_t partitions);

  // Null: rows of this table are not kept.
  KeptTable* Of(const TableSpec& spec) { return on_ ? Find(spec) : nullptr; }

  // What of a pull for use at `use` is here is in the answer.
  std::unique_ptr<CachedPull> Look(KeptTable* table, const TableSpec& spec, const Plan& plan, Clock use);

  // This push of the table has its sequences.
  void OnPush(KeptTable* table, const Plan& plan, const ClientPushes& pushes);

  void Clear();
  // Whether there is anything to forget: how much was kept is in the counters.
  std::uint64_t Hash() const;

 private:
  KeptTable* Find(const TableSpec& spec);

  ClientDesk* desk_;
  bool on_ = false;  // some table of the job keeps rows
  std::size_t partitions_ = 0;
  std::map<TableId, std::unique_ptr<KeptTable>> tables_;  // null: does not
};

}  // namespace tarn::worker
