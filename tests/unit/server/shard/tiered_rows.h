// For tests: a store with a tier, and a table of rows most of which are on disk.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/store/store.h"
#include "sim/disks/memory_cold_store.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {

class TieredRows {
 public:
  // The rows of keys 0 to keys - 1 of a table without slots and of dimension 2, in a budget for far fewer.
  TieredRows(const TableSpec& spec, Key keys, std::vector<PartitionId> owned) {
    auto cold = std::make_unique<MemoryColdStore>([] {});
    cold_ = cold.get();
    const auto places = static_cast<std::uint32_t>(owned.size());
    auto tier = std::make_unique<Residency>(ResidencyOptions{.limit_bytes = 20'000, .places = places}, std::move(cold));
    store.emplace(StoreOptions{.job_seed = kJobSeed, .partition_bits = kBits, .owned = std::move(owned)},
                  std::move(tier));
    EXPECT_TRUE(store->AddTable(spec));
    std::vector<std::uint32_t> record(2, 0x3f800000);
    for (Key key = 0; key < keys; ++key) EXPECT_TRUE(store->Load(spec.id, {&key, 1}, record));
    EndWork();
  }
  // Ends all reads and writes.
  void EndWork() {
    while (cold_->under_way() != 0) cold_->RunOne();
    EXPECT_TRUE(store->Maintain(0));
  }

  std::optional<Store> store;

 private:
  MemoryColdStore* cold_ = nullptr;
};

}  // namespace tarn::server
