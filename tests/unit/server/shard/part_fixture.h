// For tests of single parts of a shard: rows in four partitions, two workers and their messages.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/position.h"
#include "server/clock/table_policies.h"
#include "server/shard/clocks.h"
#include "server/shard/durable_outbox.h"
#include "server/shard/key_lists.h"
#include "server/shard/senders.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_step.h"
#include "server/shard/stop_notice.h"
#include "server/store/store.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {

inline constexpr Incarnation kFirstWorker(10), kSecondWorker(11);
inline constexpr std::uint64_t kJob = 4;

class PartTest : public testing::Test {
 protected:
  PartTest() {
    step_.SetIdentity(kJob, Incarnation(5));
    step_.SetEpoch(Epoch(1));
    step_.Begin(1'000'000, &out_);
    clocks_.Adopt({LiveWorker(0, kFirstWorker.value), LiveWorker(1, kSecondWorker.value)});
  }
  static std::vector<PartitionId> AllPartitions() {
    std::vector<PartitionId> all;
    all.reserve(1u << kBits);
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) all.push_back(PartitionId(p));
    return all;
  }
  void AddTable(const TableSpec& spec) {
    ASSERT_TRUE(rows_.AddTable(spec));
    ASSERT_TRUE(policies_.Put(spec));
    spec_ = spec;
  }
  PartitionId PartitionOfKey(Key key) const {
    return PartitionOf(Positioner(spec_, TableSalt(kJobSeed, spec_.name))(key), kBits);
  }
  Message From(Incarnation worker, Body body) const {
    Message message;
    message.job = kJob;
    message.sender = {Role::kWorker, worker == kFirstWorker ? 0u : 1u, worker};
    message.epoch = Epoch(1);
    message.body = std::move(body);
    return message;
  }
  KeyList ListOf(Key key, std::uint64_t sequence) const {
    return {KeyCodec::kRaw, 0, 1, {{PartitionOfKey(key), 1, Sequence(sequence)}}, 0, Buffer::Copy(&key, sizeof key)};
  }
  Message PushOf(Incarnation worker, Key key, std::uint64_t sequence, std::uint64_t clock, float gradient = 1) const {
    PushPart part{.table = spec_.id, .pulled_clock = Clock(clock), .keys = ListOf(key, sequence)};
    part.values = Buffer::CopyOf(std::span<const float>(std::vector<float>(spec_.dim, gradient)));
    return From(worker, Push{RequestId(100 + sequence), Clock(clock), {part}});
  }
  // `sequence`: the answer must include the worker's own pushes up to it.
  Message PullOf(Incarnation worker, Key key, std::uint64_t clock, std::uint64_t request,
                 std::uint64_t sequence = 0) const {
    const PullPart part{.table = spec_.id, .keys = ListOf(key, sequence)};
    return From(worker, Pull{RequestId(request), Clock(clock), {part}});
  }
  const Cohort::Member& Member(Incarnation worker) const { return clocks_.cohort().members().at(worker); }
  void Tick(Incarnation worker, std::uint64_t clock) { clocks_.Tick(worker, tarn::Tick{Clock(clock), {}, {}}); }
  // The bodies of one kind sent since the last call; drops the others.
  template <typename T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (Outgoing& outgoing : out_)
      if (auto* body = std::get_if<T>(&outgoing.message.body)) found.push_back(std::move(*body));
    out_.clear();
    return found;
  }
  float Value(Key key) const { return rows_.Values(spec_.id, key).value()[0]; }

  Outbox out_;
  ShardStep step_{ShardId(0)};
  StopNotice stop_{&step_};
  DurableOutbox outbox_{nullptr, &step_};
  ShardCounters counters_;
  Events events_;
  TableSpec spec_;
  Store rows_{{.job_seed = kJobSeed, .partition_bits = kBits, .owned = AllPartitions()}};
  TablePolicies policies_;
  Clocks clocks_{&policies_, &rows_, &events_};
  KeyLists lists_{1 << 20, 1 << 20};
  Senders senders_{&clocks_.cohort(), &step_, &counters_};
};

}  // namespace tarn::server
