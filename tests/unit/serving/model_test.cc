// Shows a full export with deltas: each key has the row, or the removal, of the newest file that contains it, and a
// delta applies only to the state that it was made for.
#include "serving/model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "core/hash.h"
#include "tests/unit/serving/small_export.h"

namespace tarn::serving {
namespace {

namespace fs = std::filesystem;

class ModelTest : public testing::Test {
 protected:
  ModelTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / fmt::format("tarn-model-{}-{}", getpid(), test->name());
    fs::create_directories(folder_);
  }
  ~ModelTest() override { fs::remove_all(folder_); }
  std::string Path(int number) const { return (folder_ / fmt::format("{}.tarn", number)).string(); }
  fs::path folder_;
};

TEST_F(ModelTest, TheNewestFileThatContainsAKeyDecides) {
  SplitMix random(3);
  Rows state;
  for (int i = 0; i < 200; ++i) state[random.Below(300)] = {float(i), 1, 2};
  ASSERT_TRUE(WriteExport(Path(3), FullInfo(), {{SparseSpec(), state, {}}}));
  auto model = Model::Open(Path(3));
  ASSERT_TRUE(model) << model.error().message;
  for (std::uint64_t id = 4; id < 10; ++id) {
    TableContent delta{SparseSpec(), {}, {}, id % 2 == 0 ? ValueCodec::kFp32 : ValueCodec::kBf16};
    for (int i = 0; i < 40; ++i) {
      const Key key = random.Below(300);
      delta.rows.erase(key);
      delta.removed.erase(key);
      state.erase(key);
      if (random.Chance(0.3))
        delta.removed.insert(key);
      else
        state[key] = delta.rows[key] = {float(id), float(i), 0.5f};
    }
    ASSERT_TRUE(WriteExport(Path(int(id)), DeltaInfo(id - 1, id), {delta}));
    const Status applied = model->Apply(Path(int(id)));
    ASSERT_TRUE(applied) << applied.error().message;
    EXPECT_EQ(model->checkpoint(), CheckpointId(id));
    std::vector<Key> keys;
    for (Key key = 0; key < 300; ++key) keys.push_back(key);
    std::vector<float> values(keys.size() * 3);
    const auto found = std::make_unique<bool[]>(keys.size());
    model->Lookup(model->FindTable("users").value(), keys, values, {found.get(), keys.size()});
    for (Key key = 0; key < 300; ++key) {
      ASSERT_EQ(found[key], state.contains(key)) << key;
      const std::vector<float> expected = state.contains(key) ? state[key] : std::vector<float>(3, 0.0f);
      for (std::size_t d = 0; d < 3; ++d) EXPECT_EQ(values[key * 3 + d], expected[d]);
    }
  }
  EXPECT_EQ(model->deltas(), 6u);
}

TEST_F(ModelTest, ADeltaOfAnotherStateIsRefused) {
  ASSERT_TRUE(WriteExport(Path(3), FullInfo(), {{SparseSpec(), SomeRows(5, 3, 1), {}}}));
  ASSERT_TRUE(WriteExport(Path(4), DeltaInfo(3, 4), {{SparseSpec(), {}, {1}}}));
  ASSERT_TRUE(WriteExport(Path(5), DeltaInfo(4, 5), {{SparseSpec(), {}, {2}}}));
  auto model = Model::Open(Path(3)).value();
  EXPECT_NE(model.Apply(Path(5)).error().message.find("applies to checkpoint 4"), std::string::npos);
  EXPECT_EQ(model.Apply(Path(3)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(model.Apply(Path(4)));
  EXPECT_FALSE(model.Apply(Path(4)));  // the same delta again
  EXPECT_TRUE(model.Apply(Path(5)));
  EXPECT_NE(Model::Open(Path(4)).error().message.find("full export"), std::string::npos);
}

TEST_F(ModelTest, ATableOfAnotherShapeOrNameIsRefused) {
  ASSERT_TRUE(WriteExport(Path(3), FullInfo(), {{SparseSpec(), SomeRows(5, 3, 1), {}}}));
  TableSpec wide = SparseSpec();
  wide.dim = 4;
  ASSERT_TRUE(WriteExport(Path(4), DeltaInfo(3, 4), {{wide, SomeRows(5, 4, 1), {}}}));
  auto model = Model::Open(Path(3)).value();
  EXPECT_EQ(model.Apply(Path(4)).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(model.deltas(), 0u);
  EXPECT_EQ(model.FindTable("items").error().message, "no table 'items'; the tables are 'users'");
}

}  // namespace
}  // namespace tarn::serving
