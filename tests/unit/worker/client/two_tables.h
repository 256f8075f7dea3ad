// Two sparse tables and their keys, for tests of pushes and of key lists.
#pragma once

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

}  // namespace tarn::worker
