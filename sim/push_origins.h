// Checks what pushes report about the pulls of their rows: the versions at which the rows were pulled and, for update
// rules that need them, the rows themselves (rules E8, A6). Checks pushes as shards receive them, including repeated
// and divided ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/message.h"

namespace tarn::sim {

class PushOrigins {
 public:
  // The rows that a worker pulled for use at a clock, of the oracle table. A worker may pull a row twice.
  void OnPulled(Incarnation incarnation, Clock use, std::span<const Key> keys, std::span<const float> rows);

  // A row of the oracle table had this value when its partition was at this version. Every step that changes the value
  // increases it.
  void OnRow(PartitionId partition, Key key, Version version, float value);
  // A shard starts. If it starts again, versions that were not durable may belong to other pushes than before, so the
  // versions are no longer checked against values.
  void OnShardStarts() { restarted_ |= !pulled_.empty(); }

  // What the check needs of the shard that received the push.
  struct Receiver {
    const TableSpec& table;
    bool is_oracle_table;
    bool pulled_all;  // the worker has pulled every row that it pushes
    std::function<Version(PartitionId)> version_of;
  };
  // Checks the rows of one table in a push. Returns the error, or an empty string.
  std::string Check(Incarnation incarnation, Clock clock, const PushPart& push, const Receiver& at) const;

 private:
  using History = std::vector<std::pair<Version, float>>;  // of a row, ascending in both
  using Values = std::map<Key, std::set<float>>;

  std::string CheckVersions(const Values& pulled, const PushPart& push) const;
  std::string CheckRows(const Values& pulled, const PushPart& push, const TableSpec& table) const;

  std::map<std::pair<Incarnation, Clock>, Values> pulled_;
  std::map<PartitionId, std::unordered_map<Key, History>> history_;
  bool restarted_ = false;
};

}  // namespace tarn::sim
