// Compares the row store with a simple model, in every combination of admission, expiry, codec of rows and kind of
// cuts: random pushes, pulls, boundaries, sweeps, cuts, and restarts from the cuts. State and hashes agree at every
// step, and loading a chain of cuts restores the store bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "core/hash.h"
#include "core/position.h"
#include "core/row_layout.h"
#include "kernels/initialize.h"
#include "kernels/optimizer.h"
#include "server/store/life.h"
#include "tests/unit/kernels/scalar_half.h"
#include "tests/unit/server/store/cut_all.h"

namespace tarn::server {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr std::uint32_t kBits = 2;
constexpr std::uint64_t kKeys = 400;
constexpr std::uint32_t kDim = 5;

enum class Admission { kNone, kCount, kProbability, kBoth };
enum class Expiry { kNone, kClocks, kSeconds, kScore, kCapacity, kCapacityByScore };
enum class Cuts { kFull, kChain };

struct Case {
  Admission admission;
  Expiry expiry;
  ValueCodec codec;
  Cuts cuts;
};

TableSpec SpecOf(const Case& c) {
  TableSpec spec;
  spec.id = TableId(2);
  spec.name = "rows";
  spec.dim = kDim;
  spec.initializer = {InitializerKind::kNormal, 0, 0.1f};
  spec.optimizer.kind = "adam";
  spec.optimizer.learning_rate = 0.05f;
  spec.row_codec = c.codec;
  LifeSpec& life = spec.life;
  if (c.admission == Admission::kCount || c.admission == Admission::kBoth) life.admit_count = 3;
  if (c.admission == Admission::kProbability || c.admission == Admission::kBoth) life.admit_probability = 0.4f;
  if (c.expiry == Expiry::kClocks) life.expire_clocks = 30;
  if (c.expiry == Expiry::kSeconds) life.expire_seconds = 40;
  if (c.expiry == Expiry::kScore) life.score_decay = 0.9f, life.min_score = 0.25f;
  if (c.expiry == Expiry::kCapacity) life.rows_max = 120;
  if (c.expiry == Expiry::kCapacityByScore) life.rows_max = 120, life.score_decay = 0.95f;
  if (life != LifeSpec{}) life.on = true, life.sweep_clocks = 20;
  return spec;
}

// The simple implementation: expired rows are removed at once.
class Model {
 public:
  explicit Model(const TableSpec& spec)
      : spec_(spec), salt_(TableSalt(kSeed, spec.name)), position_(spec, salt_), layout_(LayoutOf(spec)) {
    if (spec.life.on) rules_.emplace(spec.life);
  }

  PartitionId PartitionOfKey(Key key) const { return PartitionOf(position_(key), kBits); }

  std::vector<float> Values(Key key) const {
    const auto it = rows_.find(key);
    return Widened(it == rows_.end() ? Newborn(key) : it->second);
  }

  void Apply(Key key, const float* gradient, Clock clock) {
    const bool born = !rows_.contains(key);
    if (born && !Admitted(key, clock)) return;
    std::vector<std::uint32_t>& row = rows_.try_emplace(key, Newborn(key)).first->second;
    std::vector<float> values = Widened(row);
    float* values_at = values.data();
    float* slots = reinterpret_cast<float*>(row.data() + layout_.value_words);
    kernels::ApplyOptimizer(spec_.optimizer, clock, kDim, 1, &values_at, &slots, gradient);
    Store(key, clock, values, &row);
    if (rules_) SetLife(&row, born ? rules_->Born(now_) : rules_->Touched(LifeOf(row), now_));
  }

  void Assign(Key key, const float* values) {
    const bool born = !rows_.contains(key);
    if (born) seen_.erase(key);
    std::vector<std::uint32_t>& row = rows_.try_emplace(key, Newborn(key)).first->second;
    for (std::uint32_t j = 0; j < kDim; ++j)
      Put(&row, j, spec_.row_codec == ValueCodec::kBf16 ? Bf16FromFloat(values[j]) : Fp16FromFloat(values[j]),
          values[j]);
    if (rules_) SetLife(&row, born ? rules_->Born(now_) : rules_->Touched(LifeOf(row), now_));
  }
  void Delete(Key key) {
    rows_.erase(key);
    seen_.erase(key);
  }

  void Advance(std::uint32_t now) {
    if (!rules_) return;
    const std::uint32_t before = rules_->BoundaryBefore(now_);
    now_ = now;
    const std::uint32_t boundary = rules_->BoundaryBefore(now);
    if (!std::exchange(started_, true) || boundary == before) return;
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) Decide(PartitionId(p), boundary);
  }

  std::uint64_t StateHash() const {
    std::uint64_t sum = 0;
    for (const auto& [key, row] : rows_) sum += RowHash(salt_, key, row);
    for (const Seen seen : seen_) sum += SeenHash(salt_, seen);
    return sum;
  }
  std::size_t row_count() const { return rows_.size(); }
  std::size_t expired() const { return expired_; }
  std::size_t refused() const { return refused_; }
  std::set<Key> keys() const {
    std::set<Key> keys;
    for (const auto& [key, row] : rows_) keys.insert(key);
    return keys;
  }

 private:
  bool Admitted(Key key, Clock clock) {
    const std::uint32_t count = std::min((seen_.contains(key) ? seen_[key] : 0) + 1, spec_.life.admit_count);
    const double draw = UnitDouble(HashCombine(HashCombine(salt_ ^ 0x61646d6974, key), clock.value));
    if (count >= spec_.life.admit_count && draw < double{spec_.life.admit_probability}) {
      seen_.erase(key);
      return true;
    }
    ++refused_;
    if (count < spec_.life.admit_count) seen_[key] = count;
    return false;
  }

  // Removes the lowest classes of standing while they are too low or the rows too many.
  void Decide(PartitionId partition, std::uint32_t boundary) {
    std::map<std::uint32_t, std::vector<Key>> classes;
    std::uint64_t rows = 0;
    for (const auto& [key, row] : rows_) {
      if (PartitionOfKey(key) != partition) continue;
      classes[rules_->Standing(LifeOf(row)) / rules_->step()].push_back(key);
      ++rows;
    }
    const std::uint64_t rows_max = rules_->RowsMax(kBits);
    while (!classes.empty()) {
      const auto lowest = classes.begin();
      const bool too_low = lowest->first < rules_->LeastStanding(boundary) / rules_->step();
      const bool too_many = rows_max != 0 && rows > rows_max && classes.size() > 1;
      if (!too_low && !too_many) break;
      for (const Key key : lowest->second) rows_.erase(key);
      expired_ += lowest->second.size();
      rows -= lowest->second.size();
      classes.erase(lowest);
    }
  }

  std::vector<std::uint32_t> Newborn(Key key) const {
    std::vector<std::uint32_t> row(layout_.words(), 0);
    float values[kDim];
    kernels::InitializeRow(spec_.initializer, salt_, key, {values, kDim});
    for (std::uint32_t j = 0; j < kDim; ++j)
      Put(&row, j, spec_.row_codec == ValueCodec::kBf16 ? Bf16FromFloat(values[j]) : Fp16FromFloat(values[j]),
          values[j]);
    kernels::InitSlots(spec_.optimizer, kDim, reinterpret_cast<float*>(row.data() + layout_.value_words));
    return row;
  }
  void Store(Key key, Clock clock, const std::vector<float>& values, std::vector<std::uint32_t>* row) const {
    const std::uint64_t seed = HashCombine(HashCombine(HashCombine(salt_ ^ 0x726f756e64, clock.value), 0), key);
    for (std::uint32_t j = 0; j < kDim; ++j) {
      const std::uint32_t chance = ChanceWord(seed, j);
      Put(row, j,
          spec_.row_codec == ValueCodec::kBf16 ? Bf16ByChance(values[j], chance) : Fp16ByChance(values[j], chance),
          values[j]);
    }
  }
  void Put(std::vector<std::uint32_t>* row, std::uint32_t j, std::uint16_t half, float value) const {
    if (spec_.row_codec == ValueCodec::kFp32) {
      (*row)[j] = std::bit_cast<std::uint32_t>(value);
    } else {
      std::uint32_t& word = (*row)[j / 2];
      word = j % 2 == 0 ? (word & 0xffff0000u) | half : (word & 0xffffu) | std::uint32_t{half} << 16;
    }
  }
  std::vector<float> Widened(const std::vector<std::uint32_t>& row) const {
    std::vector<float> values(kDim);
    for (std::uint32_t j = 0; j < kDim; ++j) {
      const auto half = static_cast<std::uint16_t>(row[j / 2] >> (j % 2 * 16));
      values[j] = spec_.row_codec == ValueCodec::kFp32   ? std::bit_cast<float>(row[j])
                  : spec_.row_codec == ValueCodec::kBf16 ? FloatFromBf16(half)
                                                         : FloatFromFp16(half);
    }
    return values;
  }
  RowLife LifeOf(const std::vector<std::uint32_t>& row) const {
    const std::uint32_t* words = row.data() + row.size() - layout_.life_words;
    return {words[0], std::bit_cast<float>(words[1])};
  }
  void SetLife(std::vector<std::uint32_t>* row, RowLife life) const {
    std::uint32_t* words = row->data() + row->size() - layout_.life_words;
    words[0] = life.last;
    words[1] = std::bit_cast<std::uint32_t>(life.score);
  }

  TableSpec spec_;
  std::uint64_t salt_;
  Positioner position_;
  RowLayout layout_;
  std::optional<LifeRules> rules_;
  std::uint32_t now_ = 0;
  bool started_ = false;
  std::map<Key, std::vector<std::uint32_t>> rows_;
  std::map<Key, std::uint32_t> seen_;
  std::size_t expired_ = 0, refused_ = 0;
};

class RowStoreProductTest : public testing::TestWithParam<Case> {
 protected:
  RowStoreProductTest() : spec_(SpecOf(GetParam())), model_(spec_), rows_(MakeStore()) {}

  std::unique_ptr<Store> MakeStore() const {
    StoreOptions options{.job_seed = kSeed, .partition_bits = kBits, .owned = {}};
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) options.owned.push_back(PartitionId(p));
    auto rows = std::make_unique<Store>(options);
    EXPECT_TRUE(rows->AddTable(spec_));
    return rows;
  }

  // Distinct keys, some of them much more often than others, in order of partition.
  std::vector<Key> RandomKeys(std::vector<Section>* sections) {
    std::set<Key> chosen;
    for (std::uint64_t n = 1 + random_.Below(100); n > 0; --n) {
      const double u = random_.Unit();
      chosen.insert(Mix64(std::uint64_t(u * u * u * kKeys) + window_));
    }
    std::vector<Key> keys(chosen.begin(), chosen.end());
    std::ranges::stable_sort(keys, {}, [&](Key key) { return model_.PartitionOfKey(key); });
    sections->clear();
    for (const Key key : keys) {
      const PartitionId partition = model_.PartitionOfKey(key);
      if (sections->empty() || sections->back().partition != partition) sections->push_back({partition, 0, {}});
      ++sections->back().count;
    }
    return keys;
  }

  void Push() {
    std::vector<Section> sections;
    const std::vector<Key> keys = RandomKeys(&sections);
    std::vector<float> gradients(keys.size() * kDim);
    for (float& g : gradients) g = static_cast<float>(random_.Unit()) - 0.5f;
    const Clock clock(time_ + random_.Below(3));
    rows_->Apply(spec_.id, sections, keys, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(gradients.data()),
                 clock);
    for (std::size_t i = 0; i < keys.size(); ++i) model_.Apply(keys[i], &gradients[i * kDim], clock);
  }

  // Assigns or deletes rows.
  void Change() {
    std::vector<Section> sections;
    const std::vector<Key> keys = RandomKeys(&sections);
    std::vector<float> values(keys.size() * kDim);
    for (float& v : values) v = static_cast<float>(random_.Unit()) - 0.5f;
    const bool assigns = random_.Chance(0.5);
    ASSERT_TRUE(rows_->Apply(spec_.id, sections, keys,
                             {.gradients = reinterpret_cast<const std::byte*>(values.data()),
                              .clock = Clock(time_),
                              .action = assigns ? PushAction::kAssign : PushAction::kDelete}));
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (assigns)
        model_.Assign(keys[i], &values[i * kDim]);
      else
        model_.Delete(keys[i]);
  }

  void Pull() {
    std::vector<Section> sections;
    const std::vector<Key> keys = RandomKeys(&sections);
    std::vector<float> values(keys.size() * kDim);
    rows_->Gather(spec_.id, sections, keys, ValueCodec::kFp32, reinterpret_cast<std::byte*>(values.data()));
    for (std::size_t i = 0; i < keys.size(); ++i)
      ASSERT_TRUE(std::ranges::equal(std::span(values).subspan(i * kDim, kDim), model_.Values(keys[i])));
  }

  void Advance() {
    time_ += random_.Below(8);
    window_ += random_.Below(6);  // the range of keys moves with time
    Tell(rows_.get());
    model_.Advance(static_cast<std::uint32_t>(time_));
  }
  void Tell(Store* rows) const {
    rows->expiry().AdvanceClock(Clock(time_));
    rows->expiry().AdvanceSeconds(time_);
  }

  void Step() {
    switch (random_.Below(10)) {
      case 0:
      case 1: Advance(); break;
      case 2: rows_->expiry().Sweep(1 + random_.Below(50)); break;
      case 3: Pull(); break;
      case 4: Change(); break;
      default: Push();
    }
  }

  void Check() {
    ASSERT_EQ(rows_->StateHash().value(), model_.StateHash());
    ASSERT_EQ(rows_->row_count(), model_.row_count());
  }

  // Makes a cut, with other operations between its slices unless `at_rest`, and adds it to the chain.
  void Cut(bool at_rest) {
    const bool full = GetParam().cuts == Cuts::kFull || chain_.empty();
    const std::uint64_t hash = model_.StateHash();
    const std::set<Key> keys = model_.keys();
    CutRequest request{.scope = full ? CutScope::kAll : CutScope::kChanged,
                       .base_is_previous_cut = previous_is_base_,
                       .hash_all = random_.Chance(0.5)};
    std::vector<TableRows> cut = rows_->cut().Begin(request);
    std::vector<CutRows> chunks;
    const std::size_t slice = 1 + random_.Below(3000);
    for (bool over = false; !over;) {
      if (random_.Chance(0.01)) {
        rows_->cut().Drop();
        previous_is_base_ = false;
        return;
      }
      over = ContinueCut(rows_.get(), slice, &chunks);
      for (int i = 0; !over && !at_rest && i < 2; ++i) Step();
    }
    ASSERT_TRUE(!request.hash_all || rows_->cut().state_hash() == hash);
    previous_is_base_ = random_.Chance(0.8);
    Collect(std::move(chunks), &cut);
    std::set<Key> handed_out;
    for (const PartitionRows& partition : cut[0].partitions) {
      for (const Key key : partition.keys) EXPECT_TRUE(handed_out.insert(key).second) << "twice";
      for (const Key key : partition.removed) EXPECT_FALSE(keys.contains(key)) << "removed, and yet there";
    }
    ASSERT_TRUE(!full || handed_out == keys);
    std::vector<std::vector<TableRows>> chain = chain_;
    if (full) chain.clear();
    chain.push_back(std::move(cut));
    const std::unique_ptr<Store> loaded = LoadChain(chain);
    ASSERT_EQ(loaded->StateHash().value(), hash);
    ASSERT_EQ(loaded->row_count(), keys.size());
    if (previous_is_base_) chain_ = std::move(chain);
  }

  std::unique_ptr<Store> LoadChain(const std::vector<std::vector<TableRows>>& chain) const {
    auto rows = MakeStore();
    for (const std::vector<TableRows>& cut : chain)
      for (const PartitionRows& partition : cut[0].partitions) {
        EXPECT_TRUE(rows->Remove(spec_.id, partition.removed));
        EXPECT_TRUE(rows->Load(spec_.id, partition.keys, partition.rows));
        EXPECT_TRUE(&cut != &chain.back() || rows->LoadSeen(spec_.id, partition.seen));
      }
    return rows;
  }

  // Replaces the store by one that is loaded from the chain.
  void Restart() {
    Cut(true);
    if (!previous_is_base_ || HasFailure()) return;
    rows_ = LoadChain(chain_);
    Tell(rows_.get());
    previous_is_base_ = false;  // the loaded chain is the base
  }

  SplitMix random_{Mix64(std::uint64_t(GTEST_FLAG_GET(random_seed)) + std::uint64_t(GetParam().expiry) * 64 +
                         std::uint64_t(GetParam().admission))};
  TableSpec spec_;
  Model model_;
  std::unique_ptr<Store> rows_;
  std::uint64_t time_ = 0, window_ = 0;
  std::vector<std::vector<TableRows>> chain_;
  bool previous_is_base_ = false;
};

TEST_P(RowStoreProductTest, AgreesWithTheModel) {
  Tell(rows_.get());
  model_.Advance(0);
  for (int round = 0; round < 28 && !HasFailure(); ++round) {
    for (int i = 0; i < 12; ++i) Step();
    ASSERT_NO_FATAL_FAILURE(Check());
    ASSERT_NO_FATAL_FAILURE(round % 7 == 6 ? Restart() : Cut(false));
    ASSERT_NO_FATAL_FAILURE(Check());
  }
  EXPECT_GT(model_.row_count(), 20u);
  EXPECT_TRUE(GetParam().admission == Admission::kNone || model_.refused() > 100) << model_.refused();
  EXPECT_TRUE(GetParam().expiry == Expiry::kNone || model_.expired() > 100) << model_.expired();
  while (rows_->expiry().sweeping()) rows_->expiry().Sweep(1000);
  Check();
}

std::vector<Case> Product() {
  std::vector<Case> cases;
  for (const Admission admission : {Admission::kNone, Admission::kCount, Admission::kProbability, Admission::kBoth})
    for (const Expiry expiry : {Expiry::kNone, Expiry::kClocks, Expiry::kSeconds, Expiry::kScore, Expiry::kCapacity,
                                Expiry::kCapacityByScore})
      for (const ValueCodec codec : {ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16})
        for (const Cuts cuts : {Cuts::kFull, Cuts::kChain}) cases.push_back({admission, expiry, codec, cuts});
  return cases;
}

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  constexpr const char* kAdmissions[] = {"All", "Count", "Probability", "Both"};
  constexpr const char* kExpiries[] = {"Never", "Clocks", "Seconds", "Score", "Capacity", "CapacityByScore"};
  constexpr const char* kCuts[] = {"Full", "Chain"};
  return std::string(kAdmissions[int(info.param.admission)]) + kExpiries[int(info.param.expiry)] +
         std::string(Name(info.param.codec)) + kCuts[int(info.param.cuts)];
}

INSTANTIATE_TEST_SUITE_P(All, RowStoreProductTest, testing::ValuesIn(Product()), NameOf);

}  // namespace
}  // namespace tarn::server
