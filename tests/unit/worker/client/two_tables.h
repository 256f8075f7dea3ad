// For tests of pulls, pushes and key lists: two sparse tables and their keys.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/hash.h"
#include "tests/unit/worker/client/fake_fleet.h"

namespace tarn::worker {

inline constexpr TableId kUsers{1};
inline constexpr TableId kItems{2};

inline FleetOptions TwoTables() {
  FleetOptions options;
  options.client.nonce = 1;
  options.tables = {SparseTable("users", 4), SparseTable("items", 2)};
  return options;
}

// Different keys for each salt.
inline std::vector<Key> Keys(std::size_t n, std::uint64_t salt = 0) {
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = Mix64(i + 1 + (salt << 32));
  return keys;
}

inline void ExpectRows(const Plan& plan, const Buffer& values) {
  const auto rows = values.as<float>();
  ASSERT_EQ(rows.size(), plan.keys.size() * plan.dim);
  for (std::size_t i = 0; i < rows.size(); ++i)
    ASSERT_EQ(rows[i], ValueOf(plan.table, plan.keys[i / plan.dim], std::uint32_t(i % plan.dim)));
}

// Sends a new route map of three shards: every partition moves to another shard, with its watermarks.
inline void MovePartitions(FakeFleet* fleet) {
  std::vector<ShardId>& owners = fleet->view.routes.owners;
  for (std::uint32_t p = 0; p < owners.size(); ++p) {
    const ShardId next((owners[p].value + p % 2 + 1) % 3);
    fleet->shards[next.value].watermark[PartitionId(p)] = fleet->shards[owners[p].value].watermark[PartitionId(p)];
    owners[p] = next;
  }
  fleet->view.version = ViewVersion(2);
  fleet->view.routes.epoch = Epoch(2);
  fleet->FromScheduler(ViewUpdate{fleet->view});
}

}  // namespace tarn::worker
