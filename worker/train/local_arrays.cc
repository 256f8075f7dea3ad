#include "worker/train/local_arrays.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "kernels/rows.h"

namespace tarn::worker {
namespace {

// What a worker stores for the rows of one table: the slots of the local rule and, for `elastic`, its own values.
class KeptRows {
 public:
  KeptRows(const kernels::Optimizer* rule, std::uint32_t dim, bool keeps_values)
      : rule_(rule), dim_(dim), slot_floats_(rule->slot_floats(dim)), keeps_values_(keeps_values) {}

  bool empty() const { return slot_floats_ == 0 && !keeps_values_; }
  // The number of a key's row. A new row gets initial slots and these values.
  std::uint32_t Find(Key key, const float* values) {
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<std::uint32_t>(numbers_.size()));
    if (!is_new) return found->second;
    slots_.resize(slots_.size() + slot_floats_);
    if (slot_floats_ != 0) rule_->InitSlots(dim_, slots_.data() + slots_.size() - slot_floats_);
    if (keeps_values_) values_.insert(values_.end(), values, values + dim_);
    return found->second;
  }
  float* slots(std::uint32_t number) { return slots_.data() + std::size_t{number} * slot_floats_; }
  float* values(std::uint32_t number) { return values_.data() + std::size_t{number} * dim_; }

 private:
  const kernels::Optimizer* rule_;
  std::uint32_t dim_, slot_floats_;
  bool keeps_values_;
  std::unordered_map<Key, std::uint32_t> numbers_;
  std::vector<float> slots_, values_;
};

// One table of a batch. Rows are in the model's order: that of the plan for a sparse table, of the keys for a dense
// one.
struct LocalTable {
  LocalTable(const kernels::Optimizer* rule, const TableUse& use, bool keeps_values)
      : dim(use.spec.dim), dense(use.rows == RowsNeeded::kAll), kept(rule, dim, keeps_values) {}

  std::uint32_t dim;
  bool dense;
  KeptRows kept;
  std::size_t n = 0;
  std::vector<float> pulled, rows, gradients, sum;
  std::vector<std::uint32_t> numbers;        // of the rows in `kept`
  std::vector<std::uint32_t> touched, seen;  // rows of this step; by row: the last step that touched it
};

class LocalArrays final : public StepArrays {
 public:
  LocalArrays(const LocalSection& local, const Model& model) : local_(local), model_(model), rule_(local.optimizer) {
    for (const TableUse& use : model.tables()) tables_.emplace_back(&rule_, use, local.method == LocalMethod::kElastic);
    views_.resize(tables_.size());
  }

  Status Bring(const StepSource& source) override {
    source_ = source;
    batch_ = BatchView::Of(*source.batch);
    for (std::size_t t = 0; t < tables_.size(); ++t) BringTable(t);
    return {};
  }

  void Select(const BatchView& part) override { part_ = part; }

  void Keep(const Predictions& predictions, std::size_t begin, std::size_t rows, QualityTally* quality) override {
    worker::Tally(predictions, std::span(source_.batch->labels).subspan(begin, rows), quality);
    if (!source_.train) return;
    ++steps_;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      Touch(t);
      StepTable(&tables_[t]);
    }
  }

  Status Return(const GradientRule&) override {
    out_.clear();
    if (!source_.train) return {};
    for (std::size_t t = 0; t < tables_.size(); ++t) out_.push_back(PushOf(t));
    return {};
  }

  Expected<Gradients> Finish() override { return Gradients{.values = std::move(out_)}; }

 private:
  void BringTable(std::size_t t) {
    LocalTable& table = tables_[t];
    const Plan& plan = *source_.plans[t];
    table.n = plan.keys.size();
    const std::size_t floats = table.n * table.dim;
    const float* pulled = source_.values[t].as<float>().data();
    table.pulled.resize(floats);
    if (table.dense)
      kernels::GatherByIndex(table.dim, table.n, pulled, plan.index.data(), table.pulled.data());
    else
      std::copy_n(pulled, floats, table.pulled.data());
    table.rows = table.pulled;
    if (source_.train) FindKept(&table, plan);
    views_[t] = {table.rows.data(), nullptr, table.dense ? nullptr : plan.index.data(), table.n};
    if (!source_.train) return;
    table.gradients.assign(floats, 0.0f);
    table.sum.assign(local_.method == LocalMethod::kAccumulate ? floats : 0, 0.0f);
    table.seen.assign(table.n, 0);
    views_[t].gradients = table.gradients.data();
    first_step_ = steps_;
  }

  void FindKept(LocalTable* table, const Plan& plan) const {
    table->numbers.clear();
    if (table->kept.empty()) return;
    for (std::size_t i = 0; i < table->n; ++i) {
      const Key key = table->dense ? Key{i} : plan.keys[i];
      table->numbers.push_back(table->kept.Find(key, &table->pulled[i * table->dim]));
    }
    if (local_.method != LocalMethod::kElastic) return;
    for (std::size_t i = 0; i < table->n; ++i)
      std::copy_n(table->kept.values(table->numbers[i]), table->dim, &table->rows[i * table->dim]);
  }

  // Lists in `touched` the rows that the part has used, each once.
  void Touch(std::size_t t) {
    LocalTable& table = tables_[t];
    table.touched.clear();
    const auto touch = [&](std::uint32_t row) {
      const auto step = static_cast<std::uint32_t>(steps_ - first_step_);
      if (std::exchange(table.seen[row], step) != step) table.touched.push_back(row);
    };
    if (table.dense) {
      for (std::uint32_t row = 0; row < table.n; ++row) touch(row);
      return;
    }
    const std::vector<std::uint32_t>& index = source_.plans[t]->index;
    const std::size_t occurrences = part_.offsets[part_.rows] - part_.offsets[0];
    for (std::size_t o = 0; o < occurrences; ++o) touch(index[part_.first + o]);
    if (model_.tables()[t].rows == RowsNeeded::kBatchKeysAndBias) touch(index[part_.keys]);
  }

  void StepTable(LocalTable* table) {
    const std::uint32_t dim = table->dim;
    values_.clear();
    slots_.clear();
    scratch_.resize(table->touched.size() * dim);
    for (std::size_t i = 0; i < table->touched.size(); ++i) {
      const std::size_t row = table->touched[i];
      float* gradient = &table->gradients[row * dim];
      std::copy_n(gradient, dim, &scratch_[i * dim]);
      for (std::uint32_t j = 0; j < dim; ++j) {
        const std::size_t at = row * dim + j;
        if (!table->sum.empty()) table->sum[at] += gradient[j];
        scratch_[i * dim + j] += local_.prox * (table->rows[at] - table->pulled[at]);
      }
      std::fill_n(gradient, dim, 0.0f);
      values_.push_back(&table->rows[row * dim]);
      if (!table->kept.empty()) slots_.push_back(table->kept.slots(table->numbers[row]));
    }
    const Clock clock(steps_ - 1);
    rule_.Apply({.clock = clock, .rate = kernels::LearningRate(local_.optimizer, clock)},
                {.dim = dim,
                 .n = values_.size(),
                 .values = values_.data(),
                 .slots = slots_.empty() ? nullptr : slots_.data(),
                 .gradients = scratch_.data()});
  }

  // What is pushed for a table, in the plan's order.
  Buffer PushOf(std::size_t t) {
    LocalTable& table = tables_[t];
    switch (local_.method) {
      case LocalMethod::kNone:
      case LocalMethod::kAccumulate: break;
      case LocalMethod::kDelta:
        table.sum.resize(table.rows.size());
        for (std::size_t i = 0; i < table.rows.size(); ++i) table.sum[i] = table.pulled[i] - table.rows[i];
        break;
      case LocalMethod::kElastic: MoveElastically(&table); break;
    }
    Buffer out = Buffer::Allocate(table.sum.size() * sizeof(float));
    float* to = out.as_mutable<float>().data();
    if (table.dense)
      kernels::ScatterByIndex(table.dim, table.n, table.sum.data(), source_.plans[t]->index.data(), to);
    else
      std::copy(table.sum.begin(), table.sum.end(), to);
    return out;
  }

  void MoveElastically(LocalTable* table) const {
    const std::uint32_t dim = table->dim;
    table->sum.resize(table->rows.size());
    for (std::size_t i = 0; i < table->rows.size(); ++i) {
      table->sum[i] = local_.moving_rate * (table->pulled[i] - table->rows[i]);
      table->rows[i] += table->sum[i];
    }
    for (std::size_t i = 0; i < table->n; ++i)
      std::copy_n(&table->rows[i * dim], dim, table->kept.values(table->numbers[i]));
  }

  const LocalSection local_;
  const Model& model_;
  const kernels::Optimizer rule_;
  StepSource source_;
  BatchView part_;
  std::vector<LocalTable> tables_;
  std::uint64_t steps_ = 0;       // taken so far
  std::uint64_t first_step_ = 0;  // steps_ when this batch began
  std::vector<float*> values_, slots_;
  std::vector<float> scratch_;
  std::vector<Buffer> out_;
};

}  // namespace

std::unique_ptr<StepArrays> MakeLocalArrays(const LocalSection& local, const Model& model) {
  return std::make_unique<LocalArrays>(local, model);
}

}  // namespace tarn::worker
