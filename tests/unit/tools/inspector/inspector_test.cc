// Shows that the output of tarn-inspect is correct: every wrong count in a manifest is found, no row of a damaged or
// foreign file is shown, rows with NaN are the first of the largest, a delta applies only to the tables and shapes that
// it was made for, and nothing is written into a checkpoint.
#include <cmath>
#include <fstream>
#include <limits>

#include "serving/model.h"
#include "tests/unit/server/checkpoint/chain_fixture.h"
#include "tools/inspector/export.h"
#include "tools/inspector/npz.h"
#include "tools/inspector/rows.h"
#include "tools/inspector/source.h"
#include "tools/inspector/verify.h"

namespace tarn::inspector {
namespace {

namespace fs = std::filesystem;
using Which = RowsQuestion::Which;

class InspectorTest : public server::ChainFixture {
 protected:
  // A full checkpoint and two increments, of two shards.
  void CutThree() {
    for (std::uint64_t id = 1; id <= 3; ++id) {
      Change(&random_, id == 1 ? 1500 : 200);
      ASSERT_TRUE(Cut(id, id - 1, 2, &random_));
    }
  }
  std::string Out(const std::string& name) const { return (root_ / name).string(); }
  Status Export(std::uint64_t id, const std::string& name, const ExportOptions& options) {
    const auto told = ExportCheckpoint(Directory(id), Out(name), options);
    return told ? Status{} : Status(std::unexpected(told.error()));
  }
  void SetRow(Key key, float first) {
    std::vector<std::uint32_t>& row = state_[tables_[0].id].rows[key];
    row.assign(RowWords(tables_[0]), 0);
    row[0] = std::bit_cast<std::uint32_t>(first);
  }
  SplitMix random_{7};
};

// The second of three checkpoints is of the best epoch, and the run's folder was moved since.
TEST_F(InspectorTest, TheBestCheckpointIsChosenIfTheJobValidates) {
  using Choose = CheckpointChoice::Which;
  CutThree();
  const std::string run = root_.string();
  const auto choose = [&](Choose which, std::uint64_t number = 0) { return ChooseCheckpoint(run, {which, number}); };
  const auto note = [&](bool validated, const std::string& best) {
    Manifest manifest = manifests_.at(3);
    EpochResult first, second;
    first.best = true;
    second.epoch = 1;
    if (validated) first.valid = second.valid = Scores{};
    manifest.epochs = {first, second};
    manifest.best_checkpoint = best;
    Manifest second_checkpoint = manifests_.at(2);
    second_checkpoint.epochs = {first};
    EXPECT_TRUE(WriteManifest(Directory(2), second_checkpoint));
    return WriteManifest(Directory(3), manifest);
  };
  EXPECT_EQ(choose(Choose::kNewest)->directory, Directory(3));
  EXPECT_EQ(choose(Choose::kBestIfEvaluated)->directory, Directory(3)) << "no epoch is finished";
  EXPECT_EQ(choose(Choose::kBest).error().code, ErrorCode::kNotFound);

  ASSERT_TRUE(note(true, "/moved/since/checkpoints/ckpt-2"));
  for (const Choose which : {Choose::kBest, Choose::kBestIfEvaluated}) {
    const auto chosen = choose(which);
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_EQ(chosen->directory, Directory(2));
    EXPECT_EQ(chosen->note, "checkpoint 2 is the best, of epoch 1; the newest is 3");
  }
  EXPECT_EQ(choose(Choose::kNewest)->directory, Directory(3));
  EXPECT_EQ(choose(Choose::kNumber, 1)->directory, Directory(1));
  EXPECT_EQ(choose(Choose::kNumber, 4).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ChooseCheckpoint(Directory(1), {Choose::kBestIfEvaluated})->directory, Directory(1));
  EXPECT_EQ(ChooseCheckpoint(Directory(1), {Choose::kBest}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ChooseCheckpoint(Out("nowhere"), {Choose::kBest}).error().code, ErrorCode::kNotFound);

  ASSERT_TRUE(note(false, Directory(2)));
  EXPECT_EQ(choose(Choose::kBestIfEvaluated)->directory, Directory(3)) << "nothing was validated";
  EXPECT_EQ(choose(Choose::kBest)->directory, Directory(2));
  ASSERT_TRUE(note(true, "/moved/since/checkpoints/ckpt-9"));
  const auto gone = choose(Choose::kBestIfEvaluated);
  ASSERT_FALSE(gone) << "a worse one in silence";
  EXPECT_TRUE(
      gone.error().message.starts_with("/moved/since/checkpoints/ckpt-9: the best checkpoint of " + run + " no"))
      << gone.error().message;
}

// The best checkpoint is one of the run that this run resumed.
TEST_F(InspectorTest, TheBestCheckpointOfAnOlderRunIsFoundAndNoneOfAForeignRun) {
  CutThree();
  EpochResult first, foreign;
  first.best = true;
  first.valid = Scores{.rows = 9, .log_loss = 0.5};
  foreign.valid = Scores{.rows = 9, .log_loss = 0.6};
  Manifest manifest = manifests_.at(3);
  const fs::path older = root_ / "older", moved = root_ / "moved";
  const auto put = [&](const fs::path& run, const EpochResult& epoch) {
    fs::create_directories(run / "checkpoints");
    fs::copy(Directory(2), run / "checkpoints/ckpt-2",
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    Manifest best = manifests_.at(2);
    best.epochs = {epoch};
    const Status written = WriteManifest((run / "checkpoints/ckpt-2").string(), best);
    EXPECT_TRUE(written) << written.error().message;
  };
  const fs::path newer = root_ / "newer/checkpoints/ckpt-3";
  fs::create_directories(newer.parent_path());
  fs::copy(Directory(3), newer);
  manifest.epochs = {first};
  manifest.best_checkpoint = (moved / "older/checkpoints/ckpt-2").string();
  const Status written = WriteManifest(newer.string(), manifest);
  ASSERT_TRUE(written) << written.error().message;
  const auto best = [&] { return ChooseCheckpoint((root_ / "newer").string(), {CheckpointChoice::Which::kBest}); };
  EXPECT_EQ(best().error().code, ErrorCode::kNotFound);
  put(moved / "older", foreign);
  EXPECT_TRUE(best().error().message.contains("ckpt-2 is of another run)")) << best().error().message;
  put(older, first);
  EXPECT_EQ(best()->directory, (older / "checkpoints/ckpt-2").string()) << "both were moved to another folder";
  put(moved / "older", first);
  EXPECT_EQ(best()->directory, manifest.best_checkpoint);
}

TEST_F(InspectorTest, EveryWrongCountIsFound) {
  CutThree();
  const Manifest whole = manifests_.at(3);
  ASSERT_TRUE(VerifyCheckpoint(Directory(3))) << VerifyCheckpoint(Directory(3)).error().message;
  std::size_t patched = 0;
  const auto refuses = [&](const char* what, auto word_of) {
    Manifest manifest = whole;
    ++word_of(&manifest);
    ASSERT_TRUE(WriteManifest(Directory(3), manifest));
    const auto verified = VerifyCheckpoint(Directory(3));
    ++patched;
    ASSERT_FALSE(verified) << what;
    EXPECT_EQ(verified.error().code, ErrorCode::kCorrupt);
  };
  for (std::size_t g = 0; g < 3; ++g) {
    for (std::size_t f = 0; f < whole.generations[g].files.size(); ++f) {
      refuses("rows", [&](Manifest* m) -> auto& { return m->generations[g].files[f].rows; });
      refuses("removed", [&](Manifest* m) -> auto& { return m->generations[g].files[f].removed; });
      refuses("seen", [&](Manifest* m) -> auto& { return m->generations[g].files[f].seen; });
    }
    for (std::size_t t = 0; t < whole.generations[g].tables.size(); ++t) {
      refuses("table rows", [&](Manifest* m) -> auto& { return m->generations[g].tables[t].rows; });
      refuses("table removed", [&](Manifest* m) -> auto& { return m->generations[g].tables[t].removed; });
      refuses("table seen", [&](Manifest* m) -> auto& { return m->generations[g].tables[t].seen; });
      refuses("state rows", [&](Manifest* m) -> auto& { return m->generations[g].tables[t].state_rows; });
    }
  }
  refuses("hash", [&](Manifest* m) -> auto& { return m->generations[2].state_hash; });
  refuses("whole hash", [&](Manifest* m) -> auto& { return *m->state_hash; });
  EXPECT_GT(patched, 50u);
  ASSERT_TRUE(WriteManifest(Directory(3), whole));
  EXPECT_TRUE(VerifyCheckpoint(Directory(3)));
}

// A resume may change how many pushes a key needs for admission; the hashes of older generations still cover their
// keys.
TEST_F(InspectorTest, KeysOfAnotherAdmissionAreNoDamage) {
  Change(&random_, 1500);
  ASSERT_TRUE(Cut(1, 0, 2, &random_));
  tables_[1].life.admit_count = 1;
  Change(&random_, 200);
  ASSERT_TRUE(Cut(2, 1, 2, &random_));
  const auto verified = VerifyCheckpoint(Directory(2));
  EXPECT_TRUE(verified) << verified.error().message;
}

// If no key waits for admission, the hashes of older generations can be verified too.
TEST_F(InspectorTest, EveryWrongHashOfAGenerationIsFound) {
  tables_ = {tables_[0], tables_[2]};
  CutThree();
  for (std::size_t g = 0; g < 3; ++g) {
    Manifest manifest = manifests_.at(3);
    ASSERT_TRUE(WriteManifest(Directory(3), manifest));
    ASSERT_TRUE(VerifyCheckpoint(Directory(3)));
    ++manifest.generations[g].state_hash;
    ASSERT_TRUE(WriteManifest(Directory(3), manifest));
    EXPECT_FALSE(VerifyCheckpoint(Directory(3))) << g;
  }
}

TEST_F(InspectorTest, RowsOfAForeignFileAreNotShown) {
  SetRow(1, 1);
  ASSERT_TRUE(Cut(1, 0, 2, &random_));
  const Manifest whole = manifests_.at(1);
  SetRow(1, 2);
  ASSERT_TRUE(Cut(2, 0, 2, &random_));
  const std::uint32_t shard = PartitionOfKey(tables_[0], 1).value * 2 >> bits_;
  const std::string file = fmt::format("{}/1-shard-{}.sst", Directory(1), shard);
  const std::string other = fmt::format("{}/2-shard-{}.sst", Directory(2), shard);
  ASSERT_EQ(fs::file_size(file), fs::file_size(other));
  fs::copy_file(other, file, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  Key elsewhere = 2;  // in the other shard's file
  while ((PartitionOfKey(tables_[0], elsewhere).value * 2 >> bits_) == shard) ++elsewhere;
  for (const Which which : {Which::kFirst, Which::kKeys, Which::kLargest}) {
    const auto rows = AnswerRows(Directory(1), {.which = which, .table = "adam", .keys = {1}});
    ASSERT_FALSE(rows);
    EXPECT_TRUE(rows.error().message.starts_with(file)) << rows.error().message;
  }
  EXPECT_TRUE(AnswerRows(Directory(1), {.which = Which::kKeys, .table = "adam", .keys = {elsewhere}}));
}

TEST_F(InspectorTest, RowsWithNanAreTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Key key = 0; key < 60; ++key) SetRow(key, key % 10 == 3 ? nan : float(key));
  ASSERT_TRUE(Cut(1, 0, 2, &random_));
  const auto largest = [&](std::uint32_t count) {
    const auto text =
        AnswerRows(Directory(1), {.which = Which::kLargest, .table = "adam", .count = count, .json = true});
    std::vector<std::string> keys;
    for (std::size_t at = 0; text && (at = text->find("{\"key\":", at)) != std::string::npos; at += 7)
      keys.push_back(text->substr(at + 7, text->find(',', at) - at - 7));
    return keys;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(largest(3), (Keys{"3", "13", "23"}));
  EXPECT_EQ(largest(9), (Keys{"3", "13", "23", "33", "43", "53", "59", "58", "57"}));
}

TEST_F(InspectorTest, ADeltaAppliesOnlyToItsTables) {
  CutThree();
  ASSERT_TRUE(Export(1, "all", {}));
  ASSERT_TRUE(Export(1, "adam", {.tables = {"adam"}}));
  for (const std::string& since : {std::string("1"), Directory(1)}) {
    ASSERT_TRUE(Export(3, "all-delta", {.since = since}));
    ASSERT_TRUE(Export(3, "adam-delta", {.tables = {"adam"}, .since = since}));
    for (const std::string base : {"all", "adam"})
      for (const std::string delta : {"all", "adam"}) {
        auto model = serving::Model::Open(Out(base));
        ASSERT_TRUE(model);
        const Status applied = model->Apply(Out(delta + "-delta"));
        EXPECT_EQ(applied.has_value(), base == delta) << base << " " << delta;
        if (!applied) {
          EXPECT_NE(applied.error().message.find("different runs or table sets"), std::string::npos);
        }
      }
  }
}

TEST_F(InspectorTest, NoDeltaAppliesToAnotherShape) {
  CutThree();
  tables_[0].dim = 40;
  state_[tables_[0].id].rows.clear();
  SetRow(1, 1);
  ASSERT_TRUE(Cut(4, 0, 2, &random_));
  const Status exported = Export(4, "delta", {.since = Directory(3)});
  ASSERT_FALSE(exported);
  EXPECT_EQ(exported.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(exported.error().message.find("table 'adam': dim is 3"), std::string::npos) << exported.error().message;
  EXPECT_TRUE(Export(4, "delta", {.tables = {"dense"}, .since = Directory(3)}));
}

TEST_F(InspectorTest, NothingIsWrittenIntoACheckpoint) {
  CutThree();
  fs::create_directory(Out("folder"));
  fs::create_symlink(Out("elsewhere"), Out("link"));
  for (const std::string& out : {Directory(1) + "/MANIFEST", Directory(1) + "/1-shard-0.sst", Directory(2) + "/new",
                                 Directory(1), Out("folder"), Out("link"), std::string("/dev/null")}) {
    const auto exported = ExportCheckpoint(Directory(1), out, {});
    ASSERT_FALSE(exported) << out;
    EXPECT_EQ(exported.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(exported.error().message.starts_with(out)) << exported.error().message;
    EXPECT_FALSE(ConvertToNpz(Directory(1), out, {})) << out;
  }
  EXPECT_TRUE(VerifyCheckpoint(Directory(1)));
  EXPECT_TRUE(VerifyCheckpoint(Directory(2)));
  EXPECT_FALSE(fs::exists(Out("elsewhere")));
}

TEST_F(InspectorTest, CheckpointsThatShareADamagedFileAreNamed) {
  CutThree();
  const std::string file = Directory(2) + "/1-shard-0.sst";
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(9).put('x');
  const auto verified = VerifyCheckpoint(Directory(2));
  ASSERT_FALSE(verified);
  EXPECT_TRUE(verified.error().message.starts_with(file)) << verified.error().message;
  EXPECT_TRUE(verified.error().message.ends_with("; the same file is in ckpt-1, ckpt-3")) << verified.error().message;
}

}  // namespace
}  // namespace tarn::inspector
