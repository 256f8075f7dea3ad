// Rows of the worker's cache that servers send again whenever a clock opens (refresh_rows, rule H10): eager stale
// synchronous parallel (Dai, Kumar, Wei, Ho, Gibson, Xing, "High-performance distributed ML at scale through parameter
// server consistency models", AAAI 2015), in which servers push the rows that a worker has registered.
//
// Each table has at most one standing pull of all its cached rows, which servers park until the clock after the latest
// known one opens, and then answer at once. A worker that cannot keep up receives no further rows meanwhile.
// Internal to worker/; one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/client/client_cache.h"
#include "worker/client/client_context.h"
#include "worker/client/plan.h"

namespace tarn::worker {

class RowRefresher {
 public:
  // Starts a standing pull; `sink` is its sink.
  using Ask =
      std::function<void(const TableSpec& spec, const Plan& plan, Clock use, std::unique_ptr<CachingSink> sink)>;
  RowRefresher(ClientContext* context, ClientCache* cache, Ask ask)
      : context_(context), cache_(cache), ask_(std::move(ask)) {}

  // Notes that rows of a table have come from a shard whose open clock was this one.
  void NoteOpen(const TableSpec& spec, Clock open);
  // Starts the pulls that are due.
  void Dispatch();
  // Before the worker leaves: no more pulls are started.
  void Stop() { stopped_ = true; }

 private:
  friend class RefreshSink;
  struct Table {
    Clock open;                        // the latest known
    std::optional<Clock> asked;        // `open` when the last standing pull was started
    bool waiting = false;              // for the answer to a standing pull
    std::shared_ptr<const Plan> plan;  // of the cached rows
    std::uint64_t version = 0;         // of the cache's keys, for which `plan` was made
  };

  void Start(const TableSpec& spec, CachedTable* cached, Table* table);

  ClientContext* context_;
  ClientCache* cache_;
  Ask ask_;
  bool stopped_ = false;
  std::map<TableId, Table> tables_;  // those that are refreshed and of which rows have come
  std::vector<Key> keys_;            // scratch
};

}  // namespace tarn::worker
