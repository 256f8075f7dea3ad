// The newest view that a shard has adopted. Adopting a view adds its tables and drops the state kept for workers that
// are fenced, ended or gone (rules N3, M3, M4, W4). Not thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "core/error.h"
#include "core/view.h"
#include "server/clock/table_policies.h"
#include "server/shard/blob_desk.h"
#include "server/shard/clocks.h"
#include "server/shard/key_lists.h"
#include "server/shard/pulls.h"
#include "server/shard/shard_step.h"
#include "server/store/store.h"

namespace tarn::server {

class FleetView {
 public:
  // The objects that a view changes; all outlive this one.
  struct Context {
    Store* rows;
    TablePolicies* policies;
    Clocks* clocks;
    Pulls* pulls;
    KeyLists* lists;
    BlobDesk* blobs;
    ShardStep* step;
  };
  // `routes`: those of the first view.
  FleetView(const RouteMap& routes, const Context& context) : context_(context) { view_.routes = routes; }

  const View& view() const { return view_; }

  // Adds tables; updates the settings of existing ones.
  Status AddTables(const std::vector<TableSpec>& tables);
  // Sets the tables of the view before the first view is adopted, for the head of a new log.
  void NoteTables(const std::vector<TableSpec>& tables) { view_.tables = tables; }
  // Restores the newest view from a log.
  void Restore(ViewVersion version, const std::vector<WorkerEntry>& workers);

  // Adopts a view: checks its routes, adds its tables, calls log(), then adopts its members. kUnsupported: the view
  // moves partitions. Other errors are those of AddTables.
  Status Adopt(const View& view, const std::function<void()>& log = {});

 private:
  Status CheckRoutes(const View& view) const;
  void AdoptMembers(const View& view);
  void Drop(Incarnation worker);

  Context context_;
  View view_;
};

}  // namespace tarn::server
