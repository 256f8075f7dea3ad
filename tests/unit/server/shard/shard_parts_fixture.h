// All parts of a shard, composed as in a Shard.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/shard/shard_parts.h"
#include "sim/disks/memory_checkpoint_store.h"
#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {

class PartsTest : public testing::Test {
 protected:
  PartsTest() {
    step_.SetIdentity(kJob, Incarnation(5));
    step_.SetEpoch(Epoch(1));
    step_.Begin(1'000'000, &out_);
    routes_ = {Epoch(1), kBits, EvenOwners(kBits, 1), {"tcp://127.0.0.1:1"}};
    MakeParts();
  }
  void MakeParts() {
    StoreOptions store{.job_seed = kJobSeed, .partition_bits = kBits, .owned = {}};
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) store.owned.push_back(PartitionId(p));
    parts_ = std::make_unique<ShardParts>(ShardBase{.options = options_,
                                                    .checkpoint_store = &store_,
                                                    .observer = &events_,
                                                    .counters = &counters_,
                                                    .step = &step_,
                                                    .stop = &stop_,
                                                    .outbox = &outbox_,
                                                    .blobs = &blobs_,
                                                    .on_tick = [this] { ++ticks_; }},
                                          routes_, std::move(store), nullptr);
  }
  View ViewOf(std::uint64_t version, std::vector<WorkerEntry> workers, std::vector<TableSpec> tables) const {
    View view;
    view.version = ViewVersion(version);
    view.routes = routes_;
    view.workers = std::move(workers);
    view.tables = std::move(tables);
    return view;
  }
  template <typename T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (Outgoing& outgoing : out_)
      if (auto* body = std::get_if<T>(&outgoing.message.body)) found.push_back(std::move(*body));
    out_.clear();
    return found;
  }

  Outbox out_;
  ShardOptions options_;
  ShardStep step_{ShardId(0)};
  StopNotice stop_{&step_};
  DurableOutbox outbox_{nullptr, &step_};
  BlobDesk blobs_{nullptr};
  ShardCounters counters_;
  Events events_;
  MemoryCheckpointFiles files_;
  MemoryCheckpointStore store_{&files_, ShardId(0), [](const CheckpointPart&) {}};
  RouteMap routes_;
  int ticks_ = 0;
  std::unique_ptr<ShardParts> parts_;
};

}  // namespace tarn::server
