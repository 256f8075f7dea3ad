#include "server/shard/fleet_view.h"

#include <fmt/format.h>

#include "server/shard/watermark_table.h"

namespace tarn::server {

Status FleetView::AddTables(const std::vector<TableSpec>& tables) {
  for (const TableSpec& spec : tables) {
    TARN_RETURN_IF_ERROR(context_.rows->AddTable(spec));
    TARN_RETURN_IF_ERROR(context_.policies->Put(spec));
  }
  return {};
}

void FleetView::Restore(ViewVersion version, const std::vector<WorkerEntry>& workers) {
  view_.version = version;
  view_.workers = workers;
}

Status FleetView::CheckRoutes(const View& view) const {
  if (view.routes.partition_bits == view_.routes.partition_bits && view.routes.owners == view_.routes.owners) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("view {}: it moves partitions between shards, which is not supported", view.version.value));
}

Status FleetView::Adopt(const View& view, const std::function<void()>& log) {
  TARN_RETURN_IF_ERROR(CheckRoutes(view));
  TARN_RETURN_IF_ERROR(AddTables(view.tables));
  if (view.routes.epoch != view_.routes.epoch) context_.lists->Clear();
  if (log) log();
  AdoptMembers(view);
  view_ = view;
  context_.step->SetEpoch(view_.routes.epoch);
  return {};
}

void FleetView::AdoptMembers(const View& view) {
  context_.clocks->SetOrder(view.checkpoint);
  const Cohort::Changes changes = context_.clocks->Adopt(view.workers);
  for (const Incarnation worker : changes.refused) Drop(worker);
  for (const Incarnation worker : changes.dropped) {
    Drop(worker);
    DropWatermarks(worker, context_.rows);
  }
}

void FleetView::Drop(Incarnation worker) {
  context_.pulls->Drop(worker);
  context_.lists->Drop(worker);
  context_.blobs->Drop(worker);
}

}  // namespace tarn::server
