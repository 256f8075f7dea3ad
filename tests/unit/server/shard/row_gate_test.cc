// Shows rules T2 and T3: a message whose rows are on disk waits for them, and later messages of its peer wait behind
// it. A pull that must wait for its clock, and a push that is only gathered, do not wait for rows.
#include "server/shard/row_gate.h"

#include <gtest/gtest.h>

#include "tests/unit/server/shard/part_fixture.h"
#include "tests/unit/server/shard/tiered_rows.h"

namespace tarn::server {
namespace {

constexpr Peer kPeer{kFirstAcceptedPeer + 1}, kOtherPeer{kFirstAcceptedPeer + 2};
constexpr Key kKeys = 4000;

class RowGateTest : public PartTest {
 protected:
  // A table of rows most of which are on disk.
  void Open(ConsistencyMode mode, ApplyMode apply, std::size_t messages_max = 10) {
    AddTable(CountingTable(mode, apply));
    tiered_.emplace(spec_, kKeys, AllPartitions());
    ASSERT_GT(tiered_->store->tier()->cold_rows(), kKeys / 2);
    gate_.emplace(messages_max, 1 << 20,
                  RowGate::Context{.rows = &*tiered_->store,
                                   .clocks = &clocks_,
                                   .policies = &policies_,
                                   .senders = &senders_,
                                   .counters = &counters_});
  }
  bool Waits(Message message, Peer from = kPeer) { return gate_->Waits(from, message); }
  // Keys whose rows are on disk.
  Key ColdKey() {
    for (;; ++next_) {
      const Section section{PartitionOfKey(next_), 1, {}};
      if (tiered_->store->FetchCold(spec_.id, {&section, 1}, {&next_, 1}) != 0) return next_++;
    }
  }
  std::optional<TieredRows> tiered_;
  std::optional<RowGate> gate_;
  Key next_ = 0;
};

TEST_F(RowGateTest, APullWaitsForItsRowsAndLaterMessagesWaitBehindIt) {
  Open(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  EXPECT_TRUE(Waits(PullOf(kFirstWorker, ColdKey(), 0, 1)));
  EXPECT_TRUE(Waits(From(kFirstWorker, tarn::Tick{Clock(1), {}, {}})));
  EXPECT_FALSE(Waits(From(kSecondWorker, tarn::Tick{Clock(1), {}, {}}), kOtherPeer)) << "others do not wait";
  EXPECT_EQ(gate_->size(), 2u);
  EXPECT_EQ(counters_.waited_for_rows, 1u);
  EXPECT_TRUE(gate_->TakeReady().empty());
  tiered_->EndWork();
  const auto ready = gate_->TakeReady();
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<Pull>(ready[0].message.body));
  EXPECT_TRUE(std::holds_alternative<tarn::Tick>(ready[1].message.body));
  EXPECT_EQ(gate_->size(), 0u);
}

TEST_F(RowGateTest, APullOfALaterClockDoesNotWaitForRows) {
  Open(ConsistencyMode::kBsp, ApplyMode::kAggregated);
  EXPECT_FALSE(Waits(PullOf(kFirstWorker, ColdKey(), 1, 1)));
  EXPECT_TRUE(Waits(PullOf(kFirstWorker, ColdKey(), 0, 2)));
}

TEST_F(RowGateTest, AGatheredPushDoesNotWaitForRows) {
  Open(ConsistencyMode::kBsp, ApplyMode::kAggregated);
  EXPECT_FALSE(Waits(PushOf(kFirstWorker, ColdKey(), 1, 0)));
}

TEST_F(RowGateTest, RowsForWhichThereIsNoRoomAreFetchedLater) {
  Open(ConsistencyMode::kBsp, ApplyMode::kAggregated);
  while (tiered_->store->tier()->HasRoom()) ColdKey();
  const Key pulled = kKeys - 1, pushed = kKeys - 2;  // unlike those of ColdKey, no fetch of them has begun
  const auto fetched = [&] { return tiered_->store->tier()->counters().fetched; };
  EXPECT_TRUE(gate_->idle());
  EXPECT_FALSE(Waits(PullOf(kFirstWorker, pulled, 1, 1)));
  EXPECT_FALSE(Waits(PushOf(kFirstWorker, pushed, 1, 0)));
  EXPECT_FALSE(gate_->idle());
  EXPECT_GT(gate_->bytes(), 0u);
  EXPECT_TRUE(gate_->TakeReady().empty());
  EXPECT_FALSE(gate_->idle()) << "there is still no room";
  tiered_->EndWork();
  const auto before = fetched();
  EXPECT_TRUE(gate_->TakeReady().empty());
  EXPECT_TRUE(gate_->idle());
  EXPECT_EQ(gate_->bytes(), 0u);
  tiered_->EndWork();
  EXPECT_EQ(fetched(), before + 2);
}

TEST_F(RowGateTest, NoMoreKeysAreQueuedThanFitInTheBound) {
  Open(ConsistencyMode::kBsp, ApplyMode::kAggregated);
  while (tiered_->store->tier()->HasRoom()) ColdKey();
  EXPECT_FALSE(Waits(PullOf(kFirstWorker, kKeys - 1, 1, 1)));
  const std::size_t of_one = gate_->bytes();
  gate_->SetBound(2 * of_one);
  EXPECT_FALSE(Waits(PullOf(kFirstWorker, kKeys - 2, 1, 2)));
  EXPECT_EQ(gate_->bytes(), 2 * of_one);
  gate_->SetBound(3 * of_one);
  EXPECT_FALSE(Waits(PullOf(kFirstWorker, kKeys - 2, 1, 3)));
  EXPECT_EQ(gate_->bytes(), 2 * of_one) << "a repetition";
  gate_->SetBound(2 * of_one);
  EXPECT_FALSE(Waits(PullOf(kFirstWorker, kKeys - 3, 1, 3)));
  EXPECT_EQ(gate_->bytes(), 2 * of_one);
}

TEST_F(RowGateTest, AnImmediatePushWaitsForItsRows) {
  Open(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  const Message push = PushOf(kFirstWorker, ColdKey(), 1, 0);
  EXPECT_TRUE(Waits(push));
  EXPECT_TRUE(Waits(push)) << "a repetition is dropped";
  EXPECT_EQ(gate_->size(), 1u);
}

TEST_F(RowGateTest, MessagesBeyondTheLimitAreRefused) {
  Open(ConsistencyMode::kAsp, ApplyMode::kImmediate, 1);
  EXPECT_TRUE(Waits(PullOf(kFirstWorker, ColdKey(), 0, 1)));
  EXPECT_TRUE(Waits(PullOf(kFirstWorker, ColdKey(), 0, 2)));
  EXPECT_EQ(gate_->size(), 1u);
  EXPECT_EQ(Take<ErrorReply>().at(0).code, ErrorCode::kOverloaded);
}

TEST_F(RowGateTest, NoRowsAreFetchedForAnUnknownSender) {
  Open(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  Message stranger = PullOf(kFirstWorker, ColdKey(), 0, 1);
  stranger.sender.incarnation = Incarnation(99);
  EXPECT_FALSE(Waits(stranger));
}

}  // namespace
}  // namespace tarn::server
