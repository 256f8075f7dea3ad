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
#include <utility>

#include "core/message.h"

namespace tarn::sim {

class PushOrigins {
 public:
  // The rows that a worker pulled for use at a clock, of the oracle table. A worker may pull a row twice.
  void OnPulled(Incarnation incarnation, Clock use, std::span<const Key> keys, std::span<const float> rows);

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
  std::string CheckRows(Incarnation incarnation, Clock clock, const PushPart& push, const TableSpec& table) const;

  std::map<std::pair<Incarnation, Clock>, std::map<Key, std::set<float>>> pulled_;
};

}  // namespace tarn::sim
