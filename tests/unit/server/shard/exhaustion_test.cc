// Shows that a shard that runs out of memory ends with that reason and does not acknowledge the unfinished message.
#include "server/exhaustion.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

// Throws in the middle of a push: its sequence is already counted, but no row is updated yet.
struct NoMemoryAtAPush : Events {
  void OnPushApplied(Incarnation, PartitionId, Sequence sequence, Clock) override {
    if (sequence != Sequence(2)) return;
    if (too_long) throw std::length_error("vector::reserve");
    throw OutOfMemory("table 't', more rows");
  }
  bool too_long = false;
};

class ExhaustionTest : public ShardTest {
 protected:
  void Begin() {
    Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
    shard_ = std::make_unique<Shard>(ShardOptions{.nonce = 77}, store_.get(), &failing_);
    shard_->Start(now_, &out_);
    SendWelcome("");
    out_.clear();
  }
  NoMemoryAtAPush failing_;
};

TEST_F(ExhaustionTest, EndsTheShardWithTheReasonAndAcknowledgesNothing) {
  Begin();
  Deliver(PushOf(0, 10, 5, 1, 0));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
  Deliver(PushOf(0, 10, 5, 2, 0));
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].to, kSchedulerPeer);
  const Shutdown& told = std::get<Shutdown>(out_[0].message.body);
  EXPECT_EQ(told.code, ErrorCode::kIo);
  EXPECT_EQ(told.reason, "shard 0: out of memory: table 't', more rows");
  EXPECT_TRUE(shard_->stopped());
  EXPECT_EQ(shard_->stop_reason().reason, told.reason);
  out_.clear();
  Deliver(PushOf(0, 10, 5, 2, 0));
  Deliver(PullOf(0, 10, 5, 0, 3));
  EXPECT_TRUE(out_.empty());
}

TEST_F(ExhaustionTest, EarlierAnswersStayInTheOutbox) {
  Begin();
  Deliver(PushOf(0, 10, 5, 1, 0));
  Deliver(PushOf(0, 10, 5, 2, 0));
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<PushAck>(out_[0].message.body));
}

// Sends every answer with rows at once. Optionally runs out of memory after the first one.
class SentAnswersTest : public ShardTest {
 protected:
  struct NoMemoryAfterAnAnswer : Events {
    void OnPullServed(WorkerRank worker, Incarnation incarnation, const Pull& pull, Clock open) override {
      Events::OnPullServed(worker, incarnation, pull, open);
      if (fails) throw OutOfMemory("a reply");
    }
    bool fails = false;
  };
  // Two workers wait for clock 1. The second one's tick opens it.
  void OpenAClock() {
    Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
    shard_ = std::make_unique<Shard>(ShardOptions{.nonce = 77, .flush = [this] { Flush(); }, .flush_bytes = 1},
                                     store_.get(), &events_);
    shard_->Start(now_, &out_);
    SendWelcome("");
    Deliver(PullOf(0, 10, 5, 1, 1));
    Deliver(PullOf(1, 11, 5, 1, 2));
    Tick(0, 10, 1);
    out_.clear();
    Tick(1, 11, 1);
  }
  void Flush() {
    if (flush_fails_) throw OutOfMemory("a frame");
    sent_.push_back(out_.size());
    out_.clear();
  }
  NoMemoryAfterAnAnswer events_;
  bool flush_fails_ = false;
  std::vector<std::size_t> sent_;  // messages, by flush
};

TEST_F(SentAnswersTest, AreSentOneByOneWithinTheStep) {
  OpenAClock();
  EXPECT_EQ(sent_, (std::vector<std::size_t>{2, 1}));  // the first with the acknowledgement of the tick
  EXPECT_TRUE(out_.empty());
  EXPECT_FALSE(shard_->stopped());
}

TEST_F(SentAnswersTest, ThatWereSentBeforeTheStepFailsAreNotTakenBack) {
  events_.fails = true;
  OpenAClock();
  EXPECT_EQ(sent_, (std::vector<std::size_t>{2}));
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(std::get<Shutdown>(out_[0].message.body).reason, "shard 0: out of memory: a reply");
  EXPECT_EQ(events_.served.size(), 1u);
}

TEST_F(SentAnswersTest, WithoutMemoryForTheTransportEndTheShardWithTheReason) {
  flush_fails_ = true;
  OpenAClock();
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(std::get<Shutdown>(out_[0].message.body).reason, "shard 0: out of memory: a frame");
  EXPECT_TRUE(shard_->stopped());
}

TEST_F(ExhaustionTest, AContainerThatIsTooLongCountsAsOutOfMemory) {
  Begin();
  failing_.too_long = true;
  Deliver(PushOf(0, 10, 5, 1, 0));
  Deliver(PushOf(0, 10, 5, 2, 0));
  EXPECT_TRUE(shard_->stopped());
  EXPECT_EQ(shard_->stop_reason().reason, "shard 0: out of memory: longer than anything can be: vector::reserve");
}

TEST_F(ExhaustionTest, OutOfMemoryInTheLoopEndsTheShardToo) {
  Begin();
  shard_->Abandon({ErrorCode::kIo, "out of memory"}, &out_);
  EXPECT_EQ(Take<Shutdown>().size(), 1u);
  EXPECT_EQ(shard_->stop_reason().reason, "shard 0: out of memory");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Runs in a child process with an address space of 4 GiB; the table's only partition needs 32 GiB.
TEST_F(ExhaustionTest, TheErrorNamesADenseTableThatDoesNotFit) {
  auto too_large = [this] {
    rlimit limit{std::uint64_t{4} << 30, std::uint64_t{4} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
    TableSpec spec = CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate);
    spec.kind = TableKind::kDense;
    spec.rows = std::uint64_t{4} << 32;
    Join({LiveWorker(0, 10)}, spec);
    out_.clear();
    Deliver(PushOf(0, 10, 5, 1, 0));
    std::fprintf(stderr, "%s", shard_->stop_reason().reason.c_str());
    std::exit(shard_->stopped() && out_.size() == 1 ? 0 : 1);
  };
  EXPECT_EXIT(too_large(), testing::ExitedWithCode(0),
              "shard 0: out of memory: table 't', a partition of its 17179869184 rows, created whole of 8 bytes each: "
              "34359738368 bytes; the shard holds 0 rows in [0-9]* bytes");
}
#endif

}  // namespace
}  // namespace tarn::server
