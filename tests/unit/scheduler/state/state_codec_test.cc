// Shows that the file of a state is read as it was written, and that a damaged one is refused.
#include "scheduler/state/state.h"

#include <gtest/gtest.h>

#include "tests/unit/core/codec/old_seal.h"

namespace tarn::scheduler {
namespace {

SchedulerState SomeState() {
  SchedulerState state;
  state.run = 99;
  state.progress.job_text = "[job]\n";
  state.progress.partition_bits = 1;
  state.progress.next_incarnation = Incarnation(7);
  state.progress.data.rows[0] = 100;
  state.progress.data.split_rows = 50;
  state.progress.data.trained = {50, 10};
  state.version = ViewVersion(12);
  state.epoch = Epoch(2);
  state.owners = {ShardId(0), ShardId(1)};
  state.workers = {{WorkerRank(1), Incarnation(5), WorkerState::kEnded, Clock(3), Clock(8)}};
  state.proposal = 4;
  state.largest_end = Clock(8);
  state.last_lease = LeaseId(3);
  state.leases = {{LeaseId(3), Incarnation(6), 1, true}};
  state.begun = true;
  state.best_wanted = true;
  state.whole = CheckpointId(2);
  state.whole_directory = "run/checkpoints/ckpt-2";
  state.whole_files = 1234;
  state.pending_directory = "run/checkpoints/ckpt-3";
  state.kept = {"run/checkpoints/ckpt-1", "run/checkpoints/ckpt-2"};
  state.outdated = {"run/checkpoints/ckpt-4"};
  state.logged = {LogSequence(10), LogSequence(20)};
  return state;
}

TEST(State, IsDecodedAsItWasEncoded) {
  const SchedulerState state = SomeState();
  const auto again = DecodeState(EncodeState(state), "scheduler.state");
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(EncodeState(*again), EncodeState(state));
  EXPECT_EQ(again->leases, state.leases);
  EXPECT_EQ(again->logged, state.logged);
  EXPECT_EQ(again->kept, state.kept);
  EXPECT_EQ(again->outdated, state.outdated);
  EXPECT_EQ(again->whole_files, 1234u);
  EXPECT_EQ(again->workers[0].end, Clock(8));
}

TEST(State, EveryDamagedByteIsRefused) {
  const std::string bytes = EncodeState(SomeState());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    const auto state = DecodeState(damaged, "run/scheduler.state");
    ASSERT_FALSE(state.has_value()) << "byte " << i;
    EXPECT_TRUE(state.error().message.starts_with("run/scheduler.state: "));
  }
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(DecodeState(std::string_view(bytes).substr(0, size), "run/scheduler.state").has_value());
}

TEST(State, ADamagedEnvelopeIsRefusedInEveryVersion) {
  const std::string bytes = EncodeState(SomeState()), before = SealedBefore(bytes, 2);
  const auto old = DecodeState(before, "scheduler.state");
  ASSERT_TRUE(old) << old.error().message;
  EXPECT_EQ(EncodeState(*old), bytes);
  for (const std::string& good : {before, bytes})
    ForEveryDamagedHeader(good, [](const std::string& damaged, std::size_t at) {
      EXPECT_FALSE(DecodeState(damaged, "s")) << "byte " << at << ": " << int(damaged[at]);
    });
}

TEST(State, OnlyCheckpointsMayBeListedForRemoval) {
  for (const char* name : {"..", ".", "", "run/checkpoints", "run/checkpoints/ckpt-", "run/checkpoints/ckpt-0"}) {
    SchedulerState state = SomeState();
    state.kept.push_back(name);
    EXPECT_FALSE(DecodeState(EncodeState(state), "scheduler.state")) << name;
    state = SomeState();
    state.outdated.push_back(name);
    EXPECT_FALSE(DecodeState(EncodeState(state), "scheduler.state")) << name;
    state = SomeState();
    state.pending_directory = name;
    EXPECT_EQ(DecodeState(EncodeState(state), "scheduler.state").has_value(), *name == 0) << name;
  }
}

TEST(State, TheErrorNamesANewerFormat) {
  std::string bytes = EncodeState(SomeState());
  bytes[8] = 9;
  const auto state = DecodeState(bytes, "run/scheduler.state");
  ASSERT_FALSE(state.has_value());
  EXPECT_EQ(state.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(state.error().message, "run/scheduler.state: format version 9, expected 2 to 3: a newer tarn wrote it");
}

}  // namespace
}  // namespace tarn::scheduler
