// Shows that no record that was reported durable is lost, whichever file operation fails and whenever the power fails.
#include "tests/unit/server/log/faulty_files.h"
#include "tests/unit/server/log/log_fixture.h"

namespace tarn::server {
namespace {

// The result of Live: what was durable when the log ended, and the newest complete checkpoint.
struct Life {
  LogSequence durable;
  CheckpointId whole;
  std::uint64_t written = 0;
  bool begun = false;  // the first head was durable
  Status end;
};

// Runs a log until the first error or its end: a new log, two checkpoints, with a recovery between them.
Life Live(FileOps* files) {
  Life life;
  Driver driver(files);
  auto note = [&](Status status) {
    if (driver.durable() > life.durable) life.durable = driver.durable();
    life.begun |= life.durable.value > 0;
    life.written = std::max(life.written, driver.written());
    life.end = std::move(status);
    return life.end.has_value();
  };
  auto commits = [&](int count) {
    for (int i = 0; i < count; ++i) {
      driver.Append(2);
      if (!note(driver.Commit(i % 2 == 1))) return false;
    }
    return true;
  };
  if (!note(driver.Open())) return life;
  driver.Begin({});
  if (!note(driver.Commit()) || !commits(3)) return life;
  driver.Append(1);
  driver.Begin(CheckpointId(1));
  if (!commits(3)) return life;
  life.whole = CheckpointId(1);
  driver.Drop(CheckpointId(1));
  if (!commits(2)) return life;
  Kept kept;
  if (!note(driver.Recover(life.whole, life.durable, &kept))) return life;
  driver.Begin(ShardLog::kContinues);
  if (!commits(3)) return life;
  driver.Begin(CheckpointId(2));
  if (!commits(2)) return life;
  life.whole = CheckpointId(2);
  driver.Drop(CheckpointId(2));
  commits(2);
  return life;
}

// Expects that every durable record is read back, in order, and no record that was not written.
void CheckRecovered(MemoryDisk* disk, const Life& life, const std::string& what) {
  auto files = MakeMemoryFileOps(disk);
  Kept kept;
  const auto tail = ReadLog(files.get(), kDirectory, kIdentity, life.whole, life.durable, kept);
  if (!life.begun && !tail) return;  // nothing was reported durable, so the log may be missing
  ASSERT_TRUE(tail.has_value()) << what << ": " << tail.error().message;
  EXPECT_TRUE(kept.Right()) << what;
  EXPECT_GE(tail->last, life.durable) << what;
  EXPECT_LE(tail->last.value, life.written) << what;
}

std::uint64_t OperationsOf() {
  MemoryDisk disk;
  Fault none;
  FaultyFileOps files(MakeMemoryFileOps(&disk), &none);
  EXPECT_TRUE(Live(&files).end.has_value());
  return none.operations;
}

TEST(LogFaultTest, AnyOperationMayFail) {
  const std::uint64_t operations = OperationsOf();
  ASSERT_GT(operations, 80u);
  for (FaultKind kind : {FaultKind::kError, FaultKind::kShortWrite, FaultKind::kFull, FaultKind::kHalt}) {
    for (std::uint64_t n = 0; n < operations; ++n) {
      MemoryDisk disk;
      Fault fault{.at = n, .kind = kind};
      FaultyFileOps files(MakeMemoryFileOps(&disk), &fault);
      const Life life = Live(&files);
      ASSERT_TRUE(fault.fired);
      ASSERT_FALSE(life.end.has_value()) << "operation " << n;
      EXPECT_NE(life.end.error().message.find(kDirectory), std::string::npos) << life.end.error().message;
      disk.EndProcess();
      CheckRecovered(&disk, life, "operation " + std::to_string(n));
    }
  }
}

TEST(LogFaultTest, ThePowerMayFailAtAnyOperation) {
  const std::uint64_t operations = OperationsOf();
  for (std::uint64_t n = 0; n < operations; ++n) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      MemoryDisk disk;
      Fault fault{.at = n, .kind = FaultKind::kHalt};
      FaultyFileOps files(MakeMemoryFileOps(&disk), &fault);
      const Life life = Live(&files);
      SplitMix random(n * 100 + seed);
      disk.LosePower([&](std::uint64_t below) { return random.Below(below); });
      CheckRecovered(&disk, life, "operation " + std::to_string(n) + " seed " + std::to_string(seed));
    }
  }
}

// After a failed sync it is unknown what reached the disk, so no later record may be reported durable.
TEST(LogFaultTest, ThePowerMayFailAfterAnError) {
  const std::uint64_t operations = OperationsOf();
  for (std::uint64_t n = 0; n < operations; ++n) {
    MemoryDisk disk;
    Fault fault{.at = n, .kind = FaultKind::kError};
    FaultyFileOps files(MakeMemoryFileOps(&disk), &fault);
    const Life life = Live(&files);
    SplitMix random(n);
    disk.LosePower([&](std::uint64_t below) { return random.Below(below); });
    CheckRecovered(&disk, life, "operation " + std::to_string(n));
  }
}

// A failed sync marks pages clean that it did not write: reads find them in the cache until the power fails, and a
// second sync succeeds without writing them. So a recovery rewrites every record that it returns.
TEST(LogFaultTest, ARecoveryRewritesRecordsAfterAFailedSync) {
  int rewritten = 0;
  for (std::uint64_t n = 0;; ++n) {
    bool fired = false;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      MemoryDisk disk;
      std::uint64_t syncs = 0;
      disk.FailSyncs([&] { return syncs++ == n; });
      auto files = MakeMemoryFileOps(&disk);
      Life life = Live(files.get());
      if (!(fired = syncs > n)) break;
      ASSERT_FALSE(life.end.has_value()) << "sync " << n;
      if (!life.begun) continue;
      disk.EndProcess();

      Driver next(files.get());
      Kept handed;
      const auto recovered = next.Recover(life.whole, life.durable, &handed);
      ASSERT_TRUE(recovered.has_value()) << "sync " << n << ": " << recovered.error().message;
      rewritten += handed.sequences.back() > life.durable ? 1 : 0;
      life.durable = handed.sequences.back();
      if (seed % 2 == 0) {
        next.Begin(ShardLog::kContinues);
        ASSERT_TRUE(next.Commit());
        life.durable = next.durable();
      }
      life.written = std::max(life.written, life.durable.value);
      SplitMix random(n * 10 + seed);
      disk.LosePower([&](std::uint64_t below) { return random.Below(below); });
      CheckRecovered(&disk, life, "sync " + std::to_string(n) + " seed " + std::to_string(seed));
    }
    if (!fired) break;
  }
  EXPECT_GT(rewritten, 20);
}

// The power may also fail at any operation of the rewriting. Records beyond the mark may have been acknowledged.
TEST(LogFaultTest, ThePowerMayFailWhileATailIsRewritten) {
  for (std::uint64_t n = 0; n < 40; ++n) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      MemoryDisk disk;
      Fault none, fault{.at = n, .kind = FaultKind::kHalt};
      FaultyFileOps files(MakeMemoryFileOps(&disk), &none);
      Driver first(&files);
      ASSERT_TRUE(first.Open());
      first.Begin({});
      ASSERT_TRUE(first.Commit(true));
      for (int i = 0; i < 5; ++i) {
        first.Append(2);
        ASSERT_TRUE(first.Commit());
      }
      SplitMix random(n * 100 + seed);
      const auto dice = [&](std::uint64_t below) { return random.Below(below); };
      disk.LosePower(dice);  // the mark that covers them may or may not be written
      const Life life{.durable = first.durable(), .written = 100, .begun = true};
      FaultyFileOps failing(MakeMemoryFileOps(&disk), &fault);
      Driver second(&failing);
      Kept kept;
      (void)second.Recover({}, life.durable, &kept);
      disk.LosePower(dice);
      CheckRecovered(&disk, life, "operation " + std::to_string(n) + " seed " + std::to_string(seed));
    }
  }
}

// A killed process leaves records that it has written but not synced. The next process reads them and other nodes see
// their effects, so a power failure after that must not lose them.
TEST(LogFaultTest, RecordsThatARecoveryReturnedSurviveAPowerFailure) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    MemoryDisk disk;
    auto files = MakeMemoryFileOps(&disk);
    Driver killed(files.get());
    ASSERT_TRUE(killed.Open());
    killed.Begin({});
    ASSERT_TRUE(killed.Commit(true));
    killed.Append(20);
    ASSERT_TRUE(killed.Write());
    disk.EndProcess();

    Driver next(files.get());
    Kept handed;
    ASSERT_TRUE(next.Recover({}, killed.durable(), &handed));
    ASSERT_EQ(handed.records.size(), 21u);
    next.Begin(ShardLog::kContinues);
    if (seed % 2 == 0) {
      ASSERT_TRUE(next.Commit());
    }
    SplitMix random(seed);
    disk.LosePower([&](std::uint64_t below) { return random.Below(below); });

    const Life life{.durable = std::max(LogSequence(21), next.durable()), .written = 22, .begun = true};
    CheckRecovered(&disk, life, "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace tarn::server
