// Shows CreateTable with overrides, conflicts and limits, and barriers with deaths and joins.
#include <gtest/gtest.h>

#include "core/limits.h"
#include "scheduler/barriers.h"
#include "scheduler/tables.h"
#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

CreateTable Create(const std::string& name, std::uint32_t dim) {
  CreateTable create;
  create.spec.name = name;
  create.spec.dim = dim;
  return create;
}

TEST(Tables, GetIdsAndTheJobsOverrides) {
  Job job = SmallJob(1, 2);
  TableOverride own;
  own.has_consistency = true;
  own.consistency = {.mode = ConsistencyMode::kSsp, .staleness = 4, .apply = ApplyMode::kImmediate};
  own.has_push_codec = true;
  own.push_codec = ValueCodec::kBf16;
  job.tables["items"] = own;
  FakeFleet fleet(job);
  fleet.AddAll();
  fleet.Send(*fleet.workers[0], Create("users", 4));
  fleet.Send(*fleet.workers[0], Create("items", 4));
  fleet.Send(*fleet.workers[1], Create("items", 4));  // an equal request
  ASSERT_EQ(fleet.workers[0]->tables.size(), 2u);
  ASSERT_EQ(fleet.workers[1]->tables.size(), 1u);
  const TableSpec users = fleet.workers[0]->tables[0].spec, items = fleet.workers[1]->tables[0].spec;
  EXPECT_EQ(users.id, TableId(1));
  EXPECT_EQ(users.consistency, job.consistency);
  EXPECT_EQ(items.id, TableId(2));
  EXPECT_EQ(items.consistency, own.consistency);
  EXPECT_EQ(items.push_codec, ValueCodec::kBf16);
  EXPECT_EQ(items.pull_codec, ValueCodec::kFp32);
  EXPECT_EQ(fleet.scheduler.view().tables.size(), 2u);
}

TEST(Tables, ATableTooLargeForAShardIsRefused) {
  Job job = SmallJob(1, 1);
  FakeFleet fleet(job);
  fleet.AddAll();
  CreateTable create = Create("huge", 1);
  create.spec.kind = TableKind::kDense;
  create.spec.rows = (limits::kDensePartitionBytesMax / 4) << job.fleet.partition_bits;
  fleet.Send(*fleet.workers[0], create);
  create.spec.name = "larger";
  ++create.spec.rows;
  fleet.Send(*fleet.workers[0], create);
  ASSERT_EQ(fleet.workers[0]->tables.size(), 2u);
  EXPECT_EQ(fleet.workers[0]->tables[0].code, ErrorCode::kOk) << fleet.workers[0]->tables[0].message;
  EXPECT_EQ(fleet.workers[0]->tables[1].code, ErrorCode::kTooLarge);
  EXPECT_NE(fleet.workers[0]->tables[1].message.find("table 'larger': "), std::string::npos);
  EXPECT_FALSE(fleet.scheduler.stopping());
}

TEST(Tables, ConflictsAndBadSpecsAreRefused) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  fleet.Send(worker, Create("users", 4));
  fleet.Send(worker, Create("users", 5));
  fleet.Send(worker, Create("zero", 0));
  fleet.Send(worker, Create("wide", limits::kRowDimMax + 1));
  fleet.Send(worker, Create("widest", limits::kRowDimMax));
  ASSERT_EQ(worker.tables.size(), 5u);
  EXPECT_EQ(worker.tables[0].code, ErrorCode::kOk);
  EXPECT_EQ(worker.tables[1].code, ErrorCode::kAlreadyExists);
  EXPECT_NE(worker.tables[1].message.find("dim"), std::string::npos);
  EXPECT_NE(worker.tables[2].code, ErrorCode::kOk);
  EXPECT_NE(worker.tables[3].code, ErrorCode::kOk);
  EXPECT_EQ(worker.tables[4].code, ErrorCode::kOk);
}

TEST(Tables, ARuleThatNeedsMoreWorkersIsRefusedAlsoAfterAResume) {
  Job job = SmallJob(1, 2);
  TableSpec spec = Create("users", 4).spec;
  spec.optimizer.kind = "k_async_sgd";
  spec.optimizer.options["workers_min"] = 3;
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  Tables fresh(job), resumed(job);
  TableSpec stored = AsRun(job, spec);
  stored.id = TableId(1);
  resumed.Resumed(stored);
  EXPECT_FALSE(fresh.Ask(Incarnation(1), spec, {}, 6));
  EXPECT_FALSE(resumed.Ask(Incarnation(1), spec, {stored}, 6));
  for (Tables* tables : {&fresh, &resumed}) {
    const auto answers = tables->Answers(ViewVersion(9));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].second.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(answers[0].second.message.find("expected at most fleet.workers = 2"), std::string::npos);
  }
}

// BytePS users report weights of 0 where one worker pushed gradients and another differences.
TEST(Tables, AcceptGradientsOrDeltasButNotBoth) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.AddAll();
  CreateTable deltas = Create("users", 4);
  deltas.spec.pushes = PushedValues::kDeltas;
  fleet.Send(*fleet.workers[0], deltas);
  fleet.Send(*fleet.workers[1], Create("users", 4));
  ASSERT_EQ(fleet.workers[1]->tables.size(), 1u);
  EXPECT_EQ(fleet.workers[0]->tables[0].spec.pushes, PushedValues::kDeltas);
  EXPECT_EQ(fleet.workers[1]->tables[0].code, ErrorCode::kAlreadyExists);
  EXPECT_NE(fleet.workers[1]->tables[0].message.find("pushes deltas -> gradients"), std::string::npos)
      << fleet.workers[1]->tables[0].message;
  deltas.spec.name = "items";
  deltas.spec.optimizer.l2 = 0.1f;
  fleet.Send(*fleet.workers[0], deltas);
  EXPECT_NE(fleet.workers[0]->tables[1].message.find("l2 belongs to the gradient"), std::string::npos);
}

TEST(Tables, AreLimited) {
  Tables tables(SmallJob(1, 1));
  std::vector<TableSpec> existing(limits::kTablesMax - 1);
  for (std::size_t i = 0; i < existing.size(); ++i) existing[i].name = std::to_string(i);
  TableSpec spec;
  spec.name = "last";
  auto added = tables.Ask(Incarnation(1), spec, existing, 6);
  ASSERT_TRUE(added);
  existing.push_back(*added);
  spec.name = "one too many";
  EXPECT_FALSE(tables.Ask(Incarnation(1), spec, existing, 6));
  for (const auto& [worker, answer] : tables.Answers(ViewVersion(9)))
    EXPECT_EQ(answer.code, answer.spec.name == "last" ? ErrorCode::kOk : ErrorCode::kTooLarge);
}

TEST(Barrier, OpensWhenEveryLiveWorkerHasEntered) {
  FakeFleet fleet(SmallJob(1, 3));
  fleet.AddAll();
  fleet.Send(*fleet.workers[0], Barrier{1});
  fleet.Send(*fleet.workers[1], Barrier{1});
  EXPECT_TRUE(fleet.workers[0]->barriers.empty());
  fleet.Kill(*fleet.workers[2]);
  fleet.Pass(8);  // its death opens it
  EXPECT_EQ(fleet.workers[0]->barriers, std::vector<std::uint64_t>{1});
  EXPECT_EQ(fleet.workers[1]->barriers, std::vector<std::uint64_t>{1});
  fleet.Send(*fleet.workers[0], Barrier{1});  // the answer was lost
  EXPECT_EQ(fleet.workers[0]->barriers.size(), 2u);
}

TEST(Barrier, AJoinerFindsEarlierOnesOpen) {
  Barriers barriers;
  barriers.Join(Incarnation(1));
  for (std::uint64_t n : {1, 2, 3}) {
    barriers.Enter(Incarnation(1), n);
    EXPECT_EQ(barriers.Answers().size(), 1u);
  }
  barriers.Join(Incarnation(2));
  barriers.Enter(Incarnation(1), 4);
  EXPECT_TRUE(barriers.Answers().empty());
  for (std::uint64_t n : {1, 2, 3}) {
    barriers.Enter(Incarnation(2), n);
    EXPECT_EQ(barriers.Answers().size(), 1u);
  }
  barriers.Enter(Incarnation(2), 4);
  EXPECT_EQ(barriers.Answers().size(), 2u);
}

}  // namespace
}  // namespace tarn::scheduler
