// Answers CreateTable: assigns ids, applies the job's overrides, and stores which workers wait for an answer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/message.h"

namespace tarn::scheduler {

class Tables {
 public:
  explicit Tables(Job job) : job_(std::move(job)) {}

  // Adds a table from a checkpoint. The first worker that requests it may change its settings, but not its shape (rule
  // K5).
  void Resumed(const TableSpec& spec) { resumed_.insert(spec.name); }

  // A worker requests a table. Returns the spec to put into the view, with its id: a new table, or new settings of a
  // resumed one; nullopt: the view does not change. `existing`: the view's tables. The answer is due when the view with
  // the table is confirmed, or at once if the table is rejected.
  std::optional<TableSpec> Ask(Incarnation worker, const TableSpec& wanted, const std::vector<TableSpec>& existing,
                               std::uint32_t partition_bits);
  // Must be called with each spec that Ask returned. `version`: the first version of the view with it.
  void Added(const TableSpec& spec, ViewVersion version) { since_[spec.name] = version; }

  // Removes and returns the answers that are due, given the newest view version that all shards have confirmed.
  std::vector<std::pair<Incarnation, CreateTable>> Answers(ViewVersion confirmed);

  // The worker has ended: drops its requests.
  void End(Incarnation worker);

 private:
  Status CheckWorkersMin(const TableSpec& table) const;
  std::optional<TableSpec> AskResumed(const TableSpec& stored, std::uint32_t partition_bits, CreateTable* answer);

  Job job_;
  std::set<std::string> resumed_;             // tables of the checkpoint that are not requested yet
  std::map<std::string, ViewVersion> since_;  // absent: since the first view
  std::map<std::pair<Incarnation, std::string>, CreateTable> waiting_;
};

}  // namespace tarn::scheduler
