// The models a second time, as their papers define them and in double: the losses of one batch, for finite differences
// so small that rounding hides no term of a gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/models/model.h"

namespace tarn::worker {

class ReferenceModel {
 public:
  using Vector = std::vector<double>;

  // values[t]: table t of the model. Occurrence o of the batch has row index[o] of the sparse tables; the bias has the
  // row after that of the last occurrence. All arguments except the values must outlive this object.
  ReferenceModel(const Job& job, const Model& model, const Batch& batch, const std::vector<std::uint32_t>& index,
                 const std::vector<std::vector<float>>& values)
      : section_(job.model), uses_(model.tables()), batch_(batch), index_(index) {
    for (const auto& table : values) tables.emplace_back(table.begin(), table.end());
  }

  // The loss over all rows.
  double Loss() const {
    double sum = 0;
    for (std::size_t r = 0; r < batch_.rows; ++r) sum += LossOf(r);
    return sum;
  }

  std::vector<Vector> tables;  // to be changed between losses

 private:
  struct Table {
    const Vector* values = nullptr;
    std::size_t rows = 0, dim = 0;
    const double* row(std::size_t i) const { return values->data() + i * dim; }
  };

  bool Has(const std::string& name) const { return std::ranges::find(uses_, name, NameOf) != uses_.end(); }
  Table Find(const std::string& name) const {
    const auto use = std::ranges::find(uses_, name, NameOf);
    TARN_CHECK(use != uses_.end(), "the model has the table");
    return {&tables[static_cast<std::size_t>(use - uses_.begin())], use->spec.rows, use->spec.dim};
  }
  static const std::string& NameOf(const TableUse& use) { return use.spec.name; }

  double LossOf(std::size_t r) const {
    const Vector y = Outputs(r);
    const auto label = static_cast<std::size_t>(batch_.labels[r]);
    if (section_.kind != ModelKind::kMlp) return std::log1p(std::exp(label == 1 ? -y[0] : y[0]));
    double sum = 0;
    for (const double logit : y) sum += std::exp(logit);
    return std::log(sum) - y[label];
  }

  Vector Outputs(std::size_t r) const {
    switch (section_.kind) {
      case ModelKind::kLogisticRegression: return {Linear(r)};
      case ModelKind::kFm: return {Linear(r) + Pairs(r)};
      case ModelKind::kWideDeep: return {Linear(r) + Stack("layer", Embeddings(r), false)[0]};
      case ModelKind::kDeepFm: return {Linear(r) + Stack("layer", Embeddings(r), false)[0] + Pairs(r)};
      case ModelKind::kDlrm: return Stack("top", Interaction(Bottom(r)), false);
      case ModelKind::kDcnV2: return Stack("top", Crossed(Bottom(r)), false);
      case ModelKind::kMlp: return Stack("layer", Dense(r), false);
    }
    return {};
  }

  double WeightOf(std::size_t o) const { return batch_.weights.empty() ? 1 : batch_.weights[o]; }
  Vector Dense(std::size_t r) const {
    const auto first = batch_.dense.begin() + static_cast<std::ptrdiff_t>(r * batch_.dense_columns);
    return {first, first + batch_.dense_columns};
  }

  double Linear(std::size_t r) const {
    const Table linear = Find("linear");
    double sum = *linear.row(index_.back());
    for (std::size_t o = batch_.offsets[r]; o < batch_.offsets[r + 1]; ++o) sum += WeightOf(o) * *linear.row(index_[o]);
    return sum;
  }

  // Every pair of the row's occurrences.
  double Pairs(std::size_t r) const {
    const Table factors = Find("embedding");
    double sum = 0;
    for (std::size_t o = batch_.offsets[r]; o < batch_.offsets[r + 1]; ++o)
      for (std::size_t p = batch_.offsets[r]; p < o; ++p)
        sum += WeightOf(o) * WeightOf(p) * Dot({factors.row(index_[o]), factors.dim}, factors.row(index_[p]));
    return sum;
  }

  static double Dot(std::span<const double> a, const double* b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  Vector Embeddings(std::size_t r) const {
    const Table table = Find("embedding");
    Vector all;
    for (std::size_t o = batch_.offsets[r]; o < batch_.offsets[r + 1]; ++o)
      all.insert(all.end(), table.row(index_[o]), table.row(index_[o]) + table.dim);
    return all;
  }

  // The dense columns through the bottom stack, if there are any, and the embeddings.
  Vector Bottom(std::size_t r) const {
    Vector all = batch_.dense_columns == 0 ? Vector() : Stack("bottom", Dense(r), true);
    const Vector embeddings = Embeddings(r);
    all.insert(all.end(), embeddings.begin(), embeddings.end());
    return all;
  }

  Vector Interaction(const Vector& vectors) const {
    const std::size_t dim = section_.embedding_dim;
    Vector all(vectors.begin(), vectors.begin() + static_cast<std::ptrdiff_t>(dim));
    for (std::size_t i = 1; i < vectors.size() / dim; ++i)
      for (std::size_t j = 0; j < i; ++j) all.push_back(Dot({&vectors[i * dim], dim}, &vectors[j * dim]));
    return all;
  }

  Vector Crossed(const Vector& x0) const {
    Vector x = x0;
    for (std::uint32_t layer = 0; layer < section_.cross_layers; ++layer) {
      const std::string name = "cross." + std::to_string(layer);
      const Vector y = Has(name) ? Layer(name, x) : Layer(name + ".u", Layer(name + ".v", x));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += x0[i] * y[i];
    }
    return x;
  }

  // Each row of the table gives one output: it contains the weights and, if there is one, the bias as the last element.
  Vector Layer(const std::string& name, const Vector& x) const {
    const Table table = Find(name);
    Vector y(table.rows);
    for (std::size_t o = 0; o < table.rows; ++o)
      y[o] = Dot(x, table.row(o)) + (table.dim > x.size() ? table.row(o)[x.size()] : 0);
    return y;
  }

  Vector Stack(const std::string& name, Vector x, bool relu_last) const {
    const auto layer = [&](std::size_t i) { return name + "." + std::to_string(i); };
    for (std::size_t i = 0; Has(layer(i)); ++i) {
      x = Layer(layer(i), x);
      if (!relu_last && !Has(layer(i + 1))) break;
      for (double& v : x) v = std::max(v, 0.0);
    }
    return x;
  }

  ModelSection section_;
  const std::vector<TableUse>& uses_;
  const Batch& batch_;
  const std::vector<std::uint32_t>& index_;
};

}  // namespace tarn::worker
