// CreateTable: ids, the job's overrides, and who waits for an answer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/job.h"
#include "core/message.h"

namespace tarn::scheduler {

class Tables {
 public:
  explicit Tables(const Job& job) : consistency_(job.consistency), overrides_(job.tables) {}

  // The spec as this job runs it: the job's consistency, and what [tables.NAME] says about it and the codecs.
  TableSpec Resolve(TableSpec spec) const;

  // A worker wants a table. Returns the new table (with its id) to be put into the view, if it is one; `existing` are
  // the view's tables. The answer is due when the view that holds the table is confirmed, or at once if refused.
  std::optional<TableSpec> Ask(Incarnation worker, const TableSpec& wanted, const std::vector<TableSpec>& existing);
  // The new table stands in this version of the view.
  void Added(const TableSpec& spec, ViewVersion version) { since_[spec.name] = version; }

  // Answers that are due, given the newest view version that all shards have confirmed.
  std::vector<std::pair<Incarnation, CreateTable>> Answers(ViewVersion confirmed);

  void End(Incarnation worker);

 private:
  ConsistencySpec consistency_;
  std::map<std::string, TableOverride> overrides_;
  std::map<std::string, ViewVersion> since_;  // not here: since the first view
  std::map<std::pair<Incarnation, std::string>, CreateTable> waiting_;
};

// Why two specs of one name are not the same table ("dim: 8 here, 16 there"); empty if they are. Consistency, codecs
// and the optimizer's rates may differ between the runs of a job, so `shape_only` leaves them out.
std::string TableDifference(const TableSpec& here, const TableSpec& there, bool shape_only);

}  // namespace tarn::scheduler
