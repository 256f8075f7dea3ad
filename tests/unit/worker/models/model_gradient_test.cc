// Shows that the losses of every built-in model equal those of a reference in double (reference_model.h), and that its
// gradients equal the reference's central finite differences over all rows of all tables, to five digits of each
// table's largest. Also that evaluation does not change gradients, and which data a model refuses.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "core/limits.h"
#include "tests/unit/worker/models/reference_model.h"
#include "worker/models/factory.h"

namespace tarn::worker {
namespace {

struct Variant {
  ModelKind kind;
  std::uint32_t fields, dense_columns, classes;
  bool weighted;
  std::uint32_t cross_rank = 0;
  bool recompute = false;
};

class ModelGradients : public ::testing::TestWithParam<Variant> {
 protected:
  static constexpr std::size_t kRows = 5;
  static constexpr std::uint32_t kKeys = 7;

  void SetUp() override {
    const Variant& s = GetParam();
    job_.model.kind = s.kind;
    job_.model.embedding_dim = 4;
    job_.model.hidden = {6, 5};
    job_.model.bottom = {6};
    job_.model.cross_rank = s.cross_rank;
    job_.train.recompute = s.recompute;
    auto made = MakeModel(job_, {s.fields, s.dense_columns, s.classes});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    model_ = std::move(*made);
    MakeBatch(s);
    MakeViews();
  }

  void MakeBatch(const Variant& s) {
    batch_.Clear();
    batch_.rows = kRows;
    batch_.fields = s.fields;
    batch_.dense_columns = s.dense_columns;
    for (std::size_t r = 0; r < kRows; ++r) {
      batch_.labels.push_back(float(rng_.Below(s.classes)));
      for (std::uint32_t d = 0; d < s.dense_columns; ++d) batch_.dense.push_back(float(rng_.Unit() * 2 - 1));
      const std::size_t keys = s.fields != 0 ? s.fields : rng_.Below(4);
      for (std::size_t k = 0; k < keys; ++k) {
        batch_.keys.push_back(rng_.Below(kKeys));
        if (s.weighted) batch_.weights.push_back(float(rng_.Unit() + 0.5));
      }
      batch_.offsets.push_back(std::uint32_t(batch_.keys.size()));
    }
    for (Key key : batch_.keys) index_.push_back(std::uint32_t(key));
    index_.push_back(kKeys);  // the bias
  }

  void MakeViews() {
    for (const TableUse& use : model_->tables()) {
      const std::size_t rows = use.rows == RowsNeeded::kAll ? use.spec.rows : kKeys + 1;
      auto& values = values_.emplace_back(rows * use.spec.dim);
      for (float& v : values) v = float(rng_.Unit() - 0.5);
      gradients_.emplace_back(values.size(), 0.0f);
    }
    for (std::size_t t = 0; t < values_.size(); ++t)
      views_.push_back({values_[t].data(), gradients_[t].data(),
                        model_->tables()[t].rows == RowsNeeded::kAll ? nullptr : index_.data(),
                        values_[t].size() / model_->tables()[t].spec.dim});
  }

  Quality Step(float scale, bool train) {
    QualityTally tally;
    compute_.memory().Reset();
    Tally(model_->Step(compute_, {BatchView::Of(batch_), views_, scale, train}), batch_.labels, &tally);
    return tally.Take();
  }

  SplitMix rng_{42};
  Job job_;
  std::unique_ptr<Model> model_;
  Compute compute_;
  Batch batch_;
  std::vector<std::uint32_t> index_;
  std::vector<std::vector<float>> values_, gradients_;
  std::vector<TableView> views_;
};

TEST_P(ModelGradients, MatchFiniteDifferencesOfTheReference) {
  const Quality trained = Step(1.0f, true);
  EXPECT_EQ(trained.rows, kRows);
  ReferenceModel reference(job_, *model_, batch_, index_, values_);
  EXPECT_NEAR(trained.loss_sum, reference.Loss(), 1e-5 * reference.Loss());
  std::size_t kinks = 0, checked = 0;
  for (std::size_t t = 0; t < values_.size(); ++t) {
    const double largest = std::abs(*std::ranges::max_element(gradients_[t], {}, [](float g) { return std::abs(g); }));
    EXPECT_GT(largest, 1e-3) << model_->tables()[t].spec.name << ": or nothing is checked";
    for (std::size_t i = 0; i < values_[t].size(); ++i) {
      double& value = reference.tables[t][i];
      const auto slope = [&](double step) {
        const double kept = value;
        value = kept + step;
        const double above = reference.Loss();
        value = kept - step;
        const double below = reference.Loss();
        value = kept;
        return (above - below) / (2 * step);
      };
      const double wide = slope(2e-5), narrow = slope(1e-5);
      if (std::abs(wide - narrow) > 1e-6 * largest) {  // a ReLU's corner lies within
        ++kinks;
        continue;
      }
      ++checked;
      EXPECT_NEAR(gradients_[t][i], narrow, 1e-5 * largest) << model_->tables()[t].spec.name << " element " << i;
    }
  }
  EXPECT_GT(checked, 100 * kinks);
}

TEST_P(ModelGradients, ScaleWithTheStep) {
  Step(1.0f, true);
  const auto full = gradients_;
  for (auto& g : gradients_) std::fill(g.begin(), g.end(), 0.0f);
  Step(0.25f, true);
  for (std::size_t t = 0; t < full.size(); ++t)
    for (std::size_t i = 0; i < full[t].size(); ++i) EXPECT_NEAR(gradients_[t][i], 0.25f * full[t][i], 1e-5);
}

TEST_P(ModelGradients, EvaluationDoesNotChangeThem) {
  Step(1.0f, false);
  for (const auto& g : gradients_)
    for (float v : g) EXPECT_EQ(v, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(
    All, ModelGradients,
    ::testing::Values(Variant{ModelKind::kLogisticRegression, 3, 0, 2, false},
                      Variant{ModelKind::kLogisticRegression, 0, 0, 2, true}, Variant{ModelKind::kFm, 3, 0, 2, false},
                      Variant{ModelKind::kFm, 0, 0, 2, true}, Variant{ModelKind::kWideDeep, 3, 0, 2, false},
                      Variant{ModelKind::kDeepFm, 3, 0, 2, false}, Variant{ModelKind::kDlrm, 3, 4, 2, false},
                      Variant{ModelKind::kDcnV2, 3, 0, 2, false}, Variant{ModelKind::kDcnV2, 2, 4, 2, false},
                      Variant{ModelKind::kDcnV2, 2, 4, 2, false, 3}, Variant{ModelKind::kMlp, 0, 6, 4, false},
                      Variant{ModelKind::kDeepFm, 3, 0, 2, false, 0, true},
                      Variant{ModelKind::kDlrm, 3, 4, 2, false, 0, true},
                      Variant{ModelKind::kDcnV2, 2, 4, 2, false, 3, true},
                      Variant{ModelKind::kMlp, 0, 6, 4, false, 0, true}),
    [](const auto& test) {
      return std::string(Name(test.param.kind)) + (test.param.weighted ? "_weighted" : "") +
             (test.param.cross_rank != 0 ? "_low_rank" : "") + (test.param.dense_columns != 0 ? "_dense" : "") +
             (test.param.fields == 0 ? "_ragged" : "") + (test.param.recompute ? "_recompute" : "");
    });

// Settings that a model cannot use are refused with an error that names the key to change.
TEST(MakeModelErrors, NameWhatToChange) {
  Job job;
  job.model.kind = ModelKind::kDlrm;
  auto dlrm = MakeModel(job, {.fields = 26, .dense_columns = 0});
  ASSERT_FALSE(dlrm.has_value());
  EXPECT_NE(dlrm.error().message.find("data.dense_integers"), std::string::npos);
  job.model.kind = ModelKind::kDeepFm;
  auto ragged = MakeModel(job, {.fields = 0});
  ASSERT_FALSE(ragged.has_value());
  EXPECT_NE(ragged.error().message.find("libsvm"), std::string::npos);
  job.model.embedding_dim = 512;
  auto wide = MakeModel(job, {.fields = 8});  // 4,096 inputs and a bias: one more than a row holds
  ASSERT_FALSE(wide.has_value());
  EXPECT_NE(wide.error().message.find("4096"), std::string::npos);
  job.model.embedding_dim = 511;
  EXPECT_TRUE(MakeModel(job, {.fields = 8}).has_value());
}

// Each layer is the input of the next one, whose row must hold it and a bias.
TEST(MakeModelErrors, LayersMayBeAsWideAsRowsAllow) {
  const ModelShape both{.fields = 3, .dense_columns = 4};
  const auto with = [](ModelKind kind, std::vector<std::uint32_t> hidden, std::vector<std::uint32_t> bottom) {
    Job job;
    job.model.kind = kind;
    job.model.hidden = std::move(hidden);
    job.model.bottom = std::move(bottom);
    return job;
  };
  for (const ModelKind kind :
       {ModelKind::kWideDeep, ModelKind::kDeepFm, ModelKind::kDlrm, ModelKind::kDcnV2, ModelKind::kMlp}) {
    const auto widest = MakeModel(with(kind, {8, limits::kRowDimMax - 1}, {limits::kRowDimMax - 1}), both);
    ASSERT_TRUE(widest.has_value()) << widest.error().message;
    for (const TableUse& use : (*widest)->tables()) EXPECT_TRUE(Validate(use.spec)) << use.spec.name;
    const auto wider = MakeModel(with(kind, {8, limits::kRowDimMax}, {8}), both);
    ASSERT_FALSE(wider.has_value()) << Name(kind);
    EXPECT_TRUE(wider.error().message.starts_with("model.hidden[1] = 4096")) << wider.error().message;
  }
  for (const ModelKind kind : {ModelKind::kDlrm, ModelKind::kDcnV2}) {
    const auto wider = MakeModel(with(kind, {8}, {limits::kRowDimMax}), both);
    ASSERT_FALSE(wider.has_value()) << Name(kind);
    EXPECT_TRUE(wider.error().message.starts_with("model.bottom[0] = 4096")) << wider.error().message;
  }
}

// Indexes of keys have 31 bits, and the bias takes one more index.
TEST(MakeModelErrors, BatchesOfTooManyKeysAreRefused) {
  Job job;
  const ModelShape rows{.fields = 2'114};
  job.train.batch_rows = 1'015'839;
  ASSERT_EQ(std::uint64_t{job.train.batch_rows} * rows.fields + 1, limits::kPlanKeysMax);
  EXPECT_TRUE(MakeModel(job, rows).has_value());
  ++job.train.batch_rows;
  const auto more = MakeModel(job, rows);
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, ErrorCode::kTooLarge);
  for (const std::string key : {"train.batch_rows", "data.integer_columns", "data.categorical_columns"})
    EXPECT_NE(more.error().message.find(key), std::string::npos) << more.error().message;
  job.train.batch_rows = limits::kBatchRowsMax;  // what a job may ask for
  EXPECT_FALSE(MakeModel(job, {.fields = limits::kColumnsMax}).has_value());
  EXPECT_TRUE(MakeModel(job, {.fields = 0}).has_value()) << "each batch is looked at when it has been read";
  EXPECT_TRUE(CheckBatchKeys(1, limits::kPlanKeysMax - 1));
  EXPECT_FALSE(CheckBatchKeys(1, limits::kPlanKeysMax));
}

// The labels are 0 to 9, or there are no keys, so these models could learn nothing.
TEST(MakeModelErrors, DataThatAModelCannotLearnAreRefused) {
  const ModelShape images{.dense_columns = 784, .classes = 10}, pairs{.dense_columns = 784, .classes = 2},
      rows{.classes = 10};
  for (const ModelKind kind : {ModelKind::kLogisticRegression, ModelKind::kFm, ModelKind::kWideDeep, ModelKind::kDeepFm,
                               ModelKind::kDlrm, ModelKind::kDcnV2}) {
    Job job;
    job.model.kind = kind;
    for (const ModelShape& shape : {images, rows}) {
      const auto many = MakeModel(job, shape);
      ASSERT_FALSE(many.has_value()) << Name(kind);
      EXPECT_EQ(many.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(many.error().message.find("data.classes = 10: expected model.kind = \"mlp\""), std::string::npos);
    }
    const auto no_keys = MakeModel(job, pairs);
    ASSERT_FALSE(no_keys.has_value()) << Name(kind);
    EXPECT_NE(no_keys.error().message.find("only 784 dense columns: expected model.kind = \"mlp\""), std::string::npos);
  }
  Job job;
  job.model.kind = ModelKind::kMlp;
  for (const ModelShape& shape : {images, pairs}) EXPECT_TRUE(MakeModel(job, shape).has_value());
}

TEST(MakeModelErrors, SettingsOfATableThatTheModelDoesNotHaveAreRefused) {
  Job job;
  job.model.kind = ModelKind::kFm;
  job.tables["embedding"] = {};
  EXPECT_TRUE(MakeModel(job, {.fields = 26}).has_value());
  job.tables["embeddings"] = {};
  const auto model = MakeModel(job, {.fields = 26});
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(
      model.error().message,
      "[tables.embeddings]: model.kind = \"fm\" has no such table: expected one of linear, embedding; the nearest "
      "is 'embedding'");
}

TEST(MakeModelErrors, UnusedInputsAreNamed) {
  const ModelShape both{.fields = 26, .dense_columns = 13};
  for (const ModelKind kind :
       {ModelKind::kLogisticRegression, ModelKind::kFm, ModelKind::kWideDeep, ModelKind::kDeepFm}) {
    EXPECT_NE(UnusedInputs(kind, both).find("13 dense columns (data.dense_integers)"), std::string::npos);
    EXPECT_EQ(UnusedInputs(kind, {.fields = 26}), "");
  }
  EXPECT_NE(UnusedInputs(ModelKind::kMlp, both).find("26 keys"), std::string::npos);
  EXPECT_EQ(UnusedInputs(ModelKind::kMlp, {.dense_columns = 784, .classes = 10}), "");
  for (const ModelKind kind : {ModelKind::kDlrm, ModelKind::kDcnV2}) EXPECT_EQ(UnusedInputs(kind, both), "");
}

}  // namespace
}  // namespace tarn::worker
