// Shows that a run resumed from a checkpoint continues exactly where it was cut, whatever happened to workers meanwhile
// (rule K5).
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "scheduler/scheduler.h"
#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

// Runs a job, cuts a checkpoint after `steps`, with a death at `kill_step` after the request (none if negative), and
// resumes it in another fleet: every row of the epochs is covered exactly once by both together.
void CutAndResume(ConsistencyMode mode, ApplyMode apply, int steps, int kill_step, std::size_t reached) {
  Job job = Durable(2, 3);
  job.consistency.mode = mode;
  job.consistency.apply = apply;
  job.consistency.staleness = mode == ConsistencyMode::kSsp ? 3 : 0;
  job.train.epochs = 2;
  FakeFleet fleet(job);
  fleet.rows[0] = 605;
  fleet.rows[1] = 21;
  fleet.AddAll();
  for (int i = 0; i < steps; ++i) fleet.Step();
  if (fleet.scheduler.progress().phase != "train") return;
  const std::size_t before = fleet.store.manifests.size();
  fleet.RequestCheckpoint();
  for (int i = 0; i < 400 && fleet.store.manifests.size() == before && !fleet.scheduler.stopped(); ++i) {
    if (i == kill_step) fleet.KillInTick(*fleet.workers[1], reached);
    if (i == kill_step + 30) fleet.AddWorker(1);
    fleet.Step();
  }
  ASSERT_GT(fleet.store.manifests.size(), before);
  const Manifest manifest = fleet.store.manifests.rbegin()->second;

  Job other = job;
  other.fleet.workers = 2;
  other.fleet.shards = 3;
  FakeFleet resumed(other, &manifest);
  resumed.rows[0] = 605;
  resumed.rows[1] = 21;
  resumed.AddAll();
  EXPECT_EQ(resumed.shards[0]->resume_directory, "old");
  EXPECT_EQ(resumed.workers[0]->start, manifest.resume_clock);
  EXPECT_GE(resumed.workers[0]->incarnation, manifest.next_incarnation);
  ASSERT_TRUE(resumed.RunToEnd()) << steps << " " << kill_step;
  EXPECT_EQ(resumed.scheduler.progress().samples, 2 * 605u);
  EXPECT_EQ(resumed.scheduler.progress().epochs.size(), 2u);
  // Batches that the checkpoint does not contain were trained in the resumed run, once.
  std::uint64_t here = 0;
  for (const auto& [row, times] : resumed.trained) {
    ASSERT_EQ(times, 1) << row.first << " " << row.second;
    ++here;
  }
  EXPECT_EQ(here, 2 * 605u - manifest.samples);
  for (std::size_t i = 0; i < manifest.data.trained.size(); ++i)
    for (std::uint64_t row = 0; row < manifest.data.trained[i]; ++row)
      ASSERT_EQ(resumed.trained.count({manifest.data.epoch, i * manifest.data.split_rows + row}), 0u);
}

// All combinations that are cut at a clock.
constexpr std::pair<ConsistencyMode, ApplyMode> kModes[] = {{ConsistencyMode::kBsp, ApplyMode::kAggregated},
                                                            {ConsistencyMode::kSsp, ApplyMode::kAggregated},
                                                            {ConsistencyMode::kBsp, ApplyMode::kImmediate}};

TEST(Resume, CoversEveryRowOnceForAnyCut) {
  for (auto [mode, apply] : kModes)
    for (int steps = 1; steps < 60; steps += 3) {
      CutAndResume(mode, apply, steps, -100, 0);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Resume, CoversEveryRowOnceIfAWorkerDiesDuringTheCut) {
  for (auto [mode, apply] : kModes)
    for (int steps = 1; steps < 30; steps += 4)
      for (int kill_step = 0; kill_step < 14; ++kill_step)
        for (std::size_t reached : {0u, 1u, 2u}) {
          CutAndResume(mode, apply, steps, kill_step, reached);
          if (testing::Test::HasFatalFailure()) return;
        }
}

TEST(Resume, AFinishedRunEndsAtOnce) {
  FakeFleet fleet(Durable(1, 1));
  fleet.rows[0] = 60;
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  const Manifest manifest = fleet.store.manifests.begin()->second;
  FakeFleet again(Durable(1, 1), &manifest);
  again.rows[0] = 60;
  again.AddAll();
  ASSERT_TRUE(again.RunToEnd());
  EXPECT_TRUE(again.trained.empty());
  EXPECT_EQ(again.scheduler.progress().samples, 60u);
}

TEST(Resume, ATableOfAnotherShapeIsRefusedByName) {
  Manifest manifest;
  manifest.job_text = ToToml(Durable(1, 1));
  manifest.partition_bits = 6;
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "users";
  spec.dim = 8;
  manifest.tables.push_back(spec);
  FakeFleet fleet(Durable(1, 1), &manifest);
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  spec.dim = 16;
  fleet.Send(worker, CreateTable{.spec = spec, .code = ErrorCode::kOk, .message = {}});
  ASSERT_EQ(worker.tables.size(), 1u);
  EXPECT_EQ(worker.tables[0].code, ErrorCode::kAlreadyExists);
  EXPECT_NE(worker.tables[0].message.find("'users'"), std::string::npos);
  EXPECT_EQ(worker.tables[0].message, "table 'users': dim is 16 in the job and 8 in the checkpoint");
  spec.dim = 8;
  fleet.Send(worker, CreateTable{.spec = spec, .code = ErrorCode::kOk, .message = {}});
  ASSERT_EQ(worker.tables.size(), 2u);
  EXPECT_EQ(worker.tables[1].code, ErrorCode::kOk);
  EXPECT_EQ(worker.tables[1].spec.id, TableId(1));
}

// A fleet of two workers, resumed from a checkpoint with this table.
struct ResumedTable {
  explicit ResumedTable(const TableSpec& stored, const Job& job = Durable(1, 2)) : manifest(), fleet() {
    manifest.job_text = ToToml(job);
    manifest.partition_bits = 6;
    manifest.tables = {stored};
    fleet.emplace(job, &manifest);
    fleet->AddAll();
  }
  CreateTable Ask(std::size_t worker, const TableSpec& wanted) {
    fleet->Send(*fleet->workers[worker], CreateTable{.spec = wanted, .code = ErrorCode::kOk, .message = {}});
    return fleet->workers[worker]->tables.empty() ? CreateTable{} : fleet->workers[worker]->tables.back();
  }
  Manifest manifest;
  std::optional<FakeFleet> fleet;
};

TableSpec StoredTable() {
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "users";
  spec.dim = 8;
  spec.optimizer.kind = "adagrad";
  return spec;
}

TEST(Resume, AdoptsOtherSettingsAndReportsThem) {
  ResumedTable resumed(StoredTable());
  TableSpec wanted = StoredTable();
  wanted.optimizer.learning_rate = 0.5f;
  wanted.optimizer.schedule = {ScheduleKind::kCosine, 10, 100, 0.1f};
  wanted.optimizer.clip_norm = 2;
  wanted.optimizer.l2 = 0.25f;
  wanted.push_codec = ValueCodec::kBf16;
  const CreateTable answer = resumed.Ask(0, wanted);
  EXPECT_EQ(answer.code, ErrorCode::kOk) << answer.message;
  ASSERT_EQ(resumed.fleet->scheduler.view().tables.size(), 1u);
  const TableSpec& now = resumed.fleet->scheduler.view().tables[0];
  EXPECT_EQ(now.optimizer, wanted.optimizer);
  EXPECT_EQ(now.push_codec, ValueCodec::kBf16);
  EXPECT_EQ(resumed.fleet->shards[0]->view.tables[0].optimizer, wanted.optimizer);  // confirmed before the answer
  EXPECT_EQ(
      resumed.fleet->notes.back(),
      "table users continues with learning_rate 0.01 -> 0.5, l2 0 -> 0.25, clip_norm 0 -> 2, schedule constant -> "
      "cosine, warmup_clocks 0 -> 10, period_clocks 0 -> 100, push_codec fp32 -> bf16");
  // From now on the settings cannot change.
  EXPECT_EQ(resumed.Ask(1, wanted).code, ErrorCode::kOk);
  wanted.optimizer.learning_rate = 0.75f;
  EXPECT_EQ(resumed.Ask(1, wanted).code, ErrorCode::kAlreadyExists);
}

TEST(Resume, RefusesOtherSettingsThatStoredRowsDependOn) {
  struct {
    const char* message;
    void (*change)(TableSpec*);
  } cases[] = {
      {"dim is 9 in the job and 8 in the checkpoint", [](TableSpec* spec) { spec->dim = 9; }},
      {"optimizer is adam in the job and adagrad in the checkpoint",
       [](TableSpec* spec) { spec->optimizer.kind = "adam"; }},
      {"kind is dense in the job and sparse in the checkpoint",
       [](TableSpec* spec) { spec->kind = TableKind::kDense, spec->rows = 5; }},
      {"initializer is constant 1 in the job and zero in the checkpoint",
       [](TableSpec* spec) { spec->initializer = {InitializerKind::kConstant, 1, 0}; }},
  };
  for (const auto& tested : cases) {
    ResumedTable resumed(StoredTable());
    TableSpec wanted = StoredTable();
    tested.change(&wanted);
    const CreateTable answer = resumed.Ask(0, wanted);
    EXPECT_EQ(answer.code, ErrorCode::kAlreadyExists);
    EXPECT_EQ(answer.message, std::string("table 'users': ") + tested.message);
  }
  TableSpec dense = StoredTable();
  dense.kind = TableKind::kDense;
  dense.rows = 5;
  ResumedTable resumed(dense);
  dense.rows = 6;
  EXPECT_EQ(resumed.Ask(0, dense).message, "table 'users': rows is 6 in the job and 5 in the checkpoint");
}

TEST(Resume, ASettingOutOfItsRangeIsRefused) {
  ResumedTable resumed(StoredTable());
  TableSpec wanted = StoredTable();
  wanted.optimizer.learning_rate = -1;
  EXPECT_EQ(resumed.Ask(0, wanted).code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tarn::scheduler
