// Shows that a cut holds the rows as they were when it began, bit for bit, despite pushes between its slices, and that
// the cut does not change the effect of these pushes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "core/hash.h"
#include "core/position.h"
#include "core/row_layout.h"
#include "tests/unit/server/store/cut_all.h"

namespace tarn::server {
namespace {

constexpr std::uint64_t kSeed = 3;
constexpr std::uint32_t kBits = 3;

TableSpec Spec(std::uint32_t id, TableKind kind, std::uint32_t dim) {
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = "table" + std::to_string(id);
  spec.kind = kind;
  spec.dim = dim;
  spec.rows = kind == TableKind::kDense ? 200 : 0;
  spec.optimizer.kind = "adagrad";
  spec.initializer = {InitializerKind::kNormal, 0, 0.1f};
  return spec;
}

std::vector<PartitionId> AllPartitions() {
  std::vector<PartitionId> all;
  all.reserve(1u << kBits);
  for (std::uint32_t p = 0; p < 1u << kBits; ++p) all.push_back(PartitionId((p + 5) % (1u << kBits)));  // in any order
  return all;
}

// Three row stores. Each push goes to the ones that a test selects.
class RowStoreCutTest : public testing::Test {
 protected:
  RowStoreCutTest() {
    for (Store* rows : {&cut_, &frozen_, &free_})
      for (const TableSpec& spec : {sparse_, dense_, wide_}) EXPECT_TRUE(rows->AddTable(spec));
  }

  // A push of some random keys.
  void Push(std::initializer_list<Store*> stores, const TableSpec& spec, std::uint64_t key_space) {
    std::map<PartitionId, std::vector<Key>> parts;
    const Positioner position(spec, TableSalt(kSeed, spec.name));
    for (int i = 0; i < 5; ++i) {
      const Key key = random_.Below(spec.kind == TableKind::kDense ? spec.rows : key_space);
      std::vector<Key>& mine = parts[PartitionOf(position(key), kBits)];
      if (std::ranges::find(mine, key) == mine.end()) mine.push_back(key);
    }
    std::vector<Section> sections;
    std::vector<Key> keys;
    for (const auto& [partition, mine] : parts) {
      sections.push_back({partition, std::uint32_t(mine.size()), {}});
      keys.insert(keys.end(), mine.begin(), mine.end());
    }
    std::vector<float> gradients(keys.size() * spec.dim);
    for (float& g : gradients) g = static_cast<float>(random_.Unit()) - 0.5f;
    for (Store* rows : stores)
      rows->Apply(spec.id, sections, keys, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(gradients.data()),
                  Clock(1));
  }
  void PushAny(std::initializer_list<Store*> stores, std::uint64_t key_space) {
    const TableSpec* specs[] = {&sparse_, &dense_, &wide_};
    Push(stores, *specs[random_.Below(3)], key_space);
  }

  static void ExpectSame(std::vector<TableRows> a, std::vector<TableRows> b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t t = 0; t < a.size(); ++t) {
      ASSERT_EQ(a[t].partitions.size(), b[t].partitions.size()) << "table " << t;
      for (std::size_t p = 0; p < a[t].partitions.size(); ++p) {
        EXPECT_EQ(a[t].partitions[p].partition, b[t].partitions[p].partition);
        EXPECT_EQ(ByKey(a[t].partitions[p], a[t].row_words), ByKey(b[t].partitions[p], b[t].row_words));
        EXPECT_TRUE(p == 0 || a[t].partitions[p - 1].partition < a[t].partitions[p].partition);
      }
    }
  }
  // The bits of each row, by key. A key that occurs twice makes the comparison fail.
  static std::multimap<Key, std::vector<std::uint32_t>> ByKey(const PartitionRows& rows, std::uint32_t row_words) {
    std::multimap<Key, std::vector<std::uint32_t>> out;
    for (std::size_t i = 0; i < rows.keys.size(); ++i) {
      std::vector<std::uint32_t> bits(row_words);
      std::memcpy(bits.data(), &rows.rows[i * row_words], row_words * sizeof(float));
      out.emplace(rows.keys[i], std::move(bits));
    }
    return out;
  }

  SplitMix random_{17};
  TableSpec sparse_ = Spec(1, TableKind::kSparse, 4), dense_ = Spec(2, TableKind::kDense, 3),
            wide_ = Spec(5, TableKind::kSparse, 700);
  StoreOptions options_{.job_seed = kSeed, .partition_bits = kBits, .owned = AllPartitions()};
  Store cut_{options_};     // of which a cut is made
  Store frozen_{options_};  // gets nothing after the cut began
  Store free_{options_};    // gets all pushes, without a cut
};

TEST_F(RowStoreCutTest, HoldsTheRowsAtItsBeginningDespitePushesBetweenSlices) {
  for (const std::size_t slice : {1, 100, 2000, 50'000}) {
    for (int i = 0; i < 150; ++i) PushAny({&cut_, &frozen_, &free_}, 3000);
    std::vector<TableRows> tables = cut_.cut().Begin();
    std::vector<CutRows> chunks;
    std::size_t slices = 0;
    for (; !ContinueCut(&cut_, slice, &chunks); ++slices) {
      EXPECT_TRUE(cut_.cut().active());
      PushAny({&cut_, &free_}, 6000);  // rows that are in the cut, and new ones
    }
    EXPECT_FALSE(cut_.cut().active());
    if (slice == 1) {
      EXPECT_GT(slices, frozen_.row_count() / 2);
    }
    Collect(std::move(chunks), &tables);
    ExpectSame(std::move(tables), CutAll(&frozen_));
    EXPECT_EQ(cut_.StateHash().value(), free_.StateHash().value());
    // The next round begins with the same rows in all three.
    for (const TableRows& table : CutAll(&cut_))
      for (const PartitionRows& partition : table.partitions)
        ASSERT_TRUE(frozen_.Load(table.spec.id, partition.keys, partition.rows));
    EXPECT_EQ(frozen_.StateHash().value(), cut_.StateHash().value());
  }
}

TEST_F(RowStoreCutTest, RowsCreatedAfterItBeganAreNotInIt) {
  Push({&cut_, &frozen_}, sparse_, 100);
  std::vector<TableRows> tables = cut_.cut().Begin();
  Push({&cut_}, dense_, 0);  // a dense partition, whole
  Push({&cut_}, wide_, 100);
  const TableSpec late = Spec(7, TableKind::kSparse, 2);
  ASSERT_TRUE(cut_.AddTable(late));
  Push({&cut_}, late, 100);
  std::vector<CutRows> chunks;
  while (!ContinueCut(&cut_, 1, &chunks)) {
  }
  Collect(std::move(chunks), &tables);
  ExpectSame(std::move(tables), CutAll(&frozen_));
  EXPECT_GT(cut_.row_count(), frozen_.row_count());
  EXPECT_EQ(CutAll(&cut_).size(), 4u);
}

TEST_F(RowStoreCutTest, CountsEachEarlyCopyOnce) {
  const std::size_t row_bytes = 8 * sizeof(float);
  const Positioner position(sparse_, TableSalt(kSeed, sparse_.name));
  const std::vector<float> gradient(sparse_.dim, 1.0f);
  auto push = [&](Key key) {
    const Section section{PartitionOf(position(key), kBits), 1, {}};
    cut_.Apply(sparse_.id, {&section, 1}, {&key, 1}, ValueCodec::kFp32,
               reinterpret_cast<const std::byte*>(gradient.data()), Clock(1));
  };
  push(1);
  push(2);
  (void)cut_.cut().Begin();
  EXPECT_EQ(cut_.cut().early_bytes(), 0u);
  push(1);
  push(1);  // the row is copied already
  push(3);  // a new row, not in the cut
  EXPECT_EQ(cut_.cut().early_bytes(), row_bytes);
  std::vector<CutRows> chunks;
  while (!ContinueCut(&cut_, 1, &chunks)) {
  }
  push(2);  // the cut is over
  EXPECT_EQ(cut_.cut().early_bytes(), row_bytes);
}

TEST_F(RowStoreCutTest, CopiesNoMoreThanASlicePerCall) {
  for (int i = 0; i < 400; ++i) Push({&cut_}, sparse_, 100'000);
  (void)cut_.cut().Begin();
  const std::size_t row_bytes = 8 * sizeof(float);
  for (std::size_t slice : {1u, 1000u, 5000u}) {
    std::vector<CutRows> chunks;
    ASSERT_FALSE(ContinueCut(&cut_, slice, &chunks));
    std::size_t bytes = 0;
    // What was collected in slices before leaves with the one that ends a partition.
    for (const CutRows& chunk : chunks) bytes += chunk.rows.keys.size() * row_bytes;
    EXPECT_LE(bytes, 3 * slice + 2000);
  }
}

TEST_F(RowStoreCutTest, ReturnsNoMoreThanASlicePerCallOfEarlyCopies) {
  constexpr std::size_t kSliceBytes = 100'000;
  constexpr std::size_t kEarlyChunkBytes = 17'000;  // more than a chunk of early copies may hold
  const std::uint32_t count = 40'000;
  Store rows({.job_seed = kSeed, .partition_bits = 0, .owned = {PartitionId(0)}});
  ASSERT_TRUE(rows.AddTable(sparse_));
  std::vector<Key> keys(count);
  for (std::uint32_t i = 0; i < count; ++i) keys[i] = i;
  const std::vector<Section> sections = {{PartitionId(0), count, {}}};
  const std::vector<float> gradients(keys.size() * sparse_.dim, 1.0f);
  const auto push_all = [&] {
    rows.Apply(sparse_.id, sections, keys, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(gradients.data()),
               Clock(1));
  };
  push_all();
  (void)rows.cut().Begin();
  push_all();
  ASSERT_EQ(rows.cut().early_bytes(), count * RowWords(sparse_) * sizeof(float));
  std::size_t handed = 0, most = 0;
  for (bool done = false; !done;) {
    std::vector<CutRows> chunks;
    done = ContinueCut(&rows, kSliceBytes, &chunks);
    std::size_t bytes = 0;
    for (const CutRows& chunk : chunks) {
      bytes += ByteCount(chunk.rows);
      handed += chunk.rows.keys.size();
    }
    most = std::max(most, bytes);
  }
  EXPECT_EQ(handed, count);
  EXPECT_LE(most, kSliceBytes + kEarlyChunkBytes + sizeof(Key) * kEarlyChunkBytes / (RowWords(sparse_) * 4));
}

TEST_F(RowStoreCutTest, CanBeDroppedAndBegunAgain) {
  for (int i = 0; i < 100; ++i) PushAny({&cut_, &frozen_, &free_}, 1000);
  (void)cut_.cut().Begin();
  std::vector<CutRows> chunks;
  for (int i = 0; i < 20; ++i) {
    (void)ContinueCut(&cut_, 500, &chunks);
    PushAny({&cut_, &frozen_}, 1000);
  }
  cut_.cut().Drop();
  EXPECT_FALSE(cut_.cut().active());
  ExpectSame(CutAll(&cut_, 700), CutAll(&frozen_));
}

// Loads a chain of cuts into an empty store: the first is full, and the others are increments.
class Chain {
 public:
  explicit Chain(const StoreOptions& options, const std::vector<TableSpec>& specs) : rows_(options) {
    for (const TableSpec& spec : specs) EXPECT_TRUE(rows_.AddTable(spec));
  }
  std::uint64_t Add(const std::vector<TableRows>& cut) {
    std::uint64_t rows = 0;
    for (const TableRows& table : cut)
      for (const PartitionRows& partition : table.partitions) {
        EXPECT_TRUE(rows_.Remove(table.spec.id, partition.removed));
        EXPECT_TRUE(rows_.Load(table.spec.id, partition.keys, partition.rows));
        rows += partition.keys.size();
      }
    return rows;
  }
  Store& rows() { return rows_; }

 private:
  Store rows_;
};

TEST_F(RowStoreCutTest, AChainOfIncrementsGivesAllRows) {
  Chain chain(options_, {sparse_, dense_, wide_});
  std::uint64_t most = 0;
  for (int link = 0; link < 8; ++link) {
    for (int i = 0; i < (link == 0 ? 300 : 10); ++i) PushAny({&cut_}, 4000);
    const CutRequest request{
        .scope = link == 0 ? CutScope::kAll : CutScope::kChanged, .base_is_previous_cut = link > 0, .hash_all = true};
    const std::uint64_t hash = cut_.StateHash().value();
    std::vector<TableRows> tables = cut_.cut().Begin(request);
    std::vector<CutRows> chunks;
    while (!ContinueCut(&cut_, 300, &chunks)) PushAny({&cut_}, 5000);
    Collect(std::move(chunks), &tables);
    EXPECT_EQ(cut_.cut().state_hash(), hash);
    const std::uint64_t rows = chain.Add(tables);
    EXPECT_EQ(chain.rows().StateHash().value(), hash);
    if (link > 0) {
      EXPECT_LT(rows, most + 1000);
    }
    most = cut_.row_count();
  }
}

TEST_F(RowStoreCutTest, ChangesOfALostCutAreInTheNext) {
  Chain chain(options_, {sparse_, dense_, wide_});
  for (int i = 0; i < 100; ++i) PushAny({&cut_}, 1000);
  chain.Add(CutAll(&cut_));
  bool base = true;
  for (int round = 0; round < 4; ++round) {
    PushAny({&cut_}, 1000);
    (void)cut_.cut().Begin({.scope = CutScope::kChanged, .base_is_previous_cut = base});
    std::vector<CutRows> chunks;
    (void)ContinueCut(&cut_, 200, &chunks);
    PushAny({&cut_}, 1000);
    if (round % 2 == 0) cut_.cut().Drop();
    while (cut_.cut().active()) (void)ContinueCut(&cut_, 200, &chunks);  // all of it returned, but lost
    base = false;
  }
  chain.Add(CutAll(&cut_, 500, {.scope = CutScope::kChanged}));
  EXPECT_EQ(chain.rows().StateHash().value(), cut_.StateHash().value());
}

TEST_F(RowStoreCutTest, LoadedRowsDoNotCountAsChanged) {
  for (int i = 0; i < 100; ++i) PushAny({&frozen_}, 1000);
  Chain chain(options_, {sparse_, dense_, wide_});
  chain.Add(CutAll(&frozen_));
  const auto count = [&] { return RowCount(CutAll(&chain.rows(), 1 << 20, {.scope = CutScope::kChanged})); };
  EXPECT_EQ(count(), 0u);
  Push({&chain.rows()}, sparse_, 1000);
  EXPECT_LE(count(), 5u);
  EXPECT_GE(count(), 1u);  // the cut before was not the base
}

TEST_F(RowStoreCutTest, LaterRowsReplaceEarlierOnesAndRemovedRowsAreGone) {
  Push({&cut_}, sparse_, 50);
  const std::vector<TableRows> first = CutAll(&cut_);
  const Key key = first[0].partitions[0].keys[0];
  std::vector<std::uint32_t> row(RowWords(sparse_), 0x7f812345);  // signalling NaNs keep their bits
  ASSERT_TRUE(cut_.Load(sparse_.id, std::vector{key}, row));
  for (const TableRows& table : CutAll(&cut_))
    for (const PartitionRows& partition : table.partitions)
      for (std::size_t i = 0; i < partition.keys.size(); ++i)
        EXPECT_TRUE(partition.keys[i] != key || std::vector(&partition.rows[i * 8], &partition.rows[i * 8 + 8]) == row);
  const std::uint64_t before = cut_.row_count();
  ASSERT_TRUE(cut_.Remove(sparse_.id, std::vector{key, key, ~key}));
  EXPECT_EQ(cut_.row_count(), before - 1);
  EXPECT_EQ(cut_.Remove(dense_.id, std::vector<Key>{3}).error().code, ErrorCode::kCorrupt);
  ASSERT_TRUE(cut_.Load(sparse_.id, std::vector{key}, row));
  EXPECT_EQ(cut_.row_count(), before);
}

TEST_F(RowStoreCutTest, KeysCountedWithoutARowAreInEveryCut) {
  ASSERT_TRUE(cut_.LoadSeen(sparse_.id, std::vector<Seen>{{5, 2}, {6, 1}}));
  EXPECT_EQ(cut_.row_count(), 0u);
  const std::uint64_t hash = cut_.StateHash().value();
  EXPECT_NE(hash, 0u);
  for (const CutScope scope : {CutScope::kAll, CutScope::kChanged, CutScope::kChanged}) {
    const std::vector<TableRows> tables = CutAll(&cut_, 1, {.scope = scope, .base_is_previous_cut = true});
    EXPECT_EQ(StateHash(tables), hash);
    ASSERT_TRUE(free_.LoadSeen(sparse_.id, tables[0].partitions[0].seen));
  }
  EXPECT_EQ(cut_.LoadSeen(dense_.id, std::vector<Seen>{{5, 2}}).error().code, ErrorCode::kCorrupt);
}

// Creates rows of one partition, lets them expire, and counts the removed keys that a cut names.
class RemovedKeysTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kRemembered = 40;
  explicit RemovedKeysTest(std::uint64_t remembered = kRemembered)
      : rows_({.job_seed = kSeed, .partition_bits = 0, .owned = {PartitionId(0)}, .removed_keys_max = remembered}) {
    spec_.life = {.on = true, .expire_clocks = 8, .sweep_clocks = 8};
    EXPECT_TRUE(rows_.AddTable(spec_));
    rows_.expiry().AdvanceClock(Clock(0));
  }
  // Pushes `count` new keys.
  void Push(std::uint32_t count) {
    std::vector<Key> keys(count);
    for (Key& key : keys) key = next_key_++;
    const std::vector<Section> sections = {{PartitionId(0), count, {}}};
    const std::vector<float> gradients(keys.size() * spec_.dim, 1.0f);
    rows_.Apply(spec_.id, sections, keys, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(gradients.data()),
                clock_);
  }
  void Expire() {
    clock_ = clock_ + 20;
    rows_.expiry().AdvanceClock(clock_);
    EXPECT_EQ(rows_.row_count(), 0u);
  }
  void ComeAndGo(std::uint32_t count) {
    Push(count);
    Expire();
    while (rows_.expiry().sweeping()) rows_.expiry().Sweep(100);
  }
  std::size_t RemovedIn(CutRequest request) {
    std::size_t removed = 0;
    for (const TableRows& table : CutAll(&rows_, 1, request))
      for (const PartitionRows& partition : table.partitions) removed += partition.removed.size();
    return removed;
  }

  TableSpec spec_ = Spec(1, TableKind::kSparse, 4);
  Store rows_;
  Key next_key_ = 0;
  Clock clock_;
};

class ManyRemovedKeysTest : public RemovedKeysTest {
 protected:
  ManyRemovedKeysTest() : RemovedKeysTest(limits::kRemovedKeysMax) {}

  struct RemovedKeys {
    std::size_t all = 0;   // in all slices
    std::size_t most = 0;  // in one slice
  };
  // Continues the cut to its end.
  RemovedKeys RemovedInSlices(std::size_t slice_bytes) {
    RemovedKeys removed;
    for (bool done = false; !done;) {
      std::vector<CutRows> chunks;
      done = ContinueCut(&rows_, slice_bytes, &chunks);
      std::size_t now = 0;
      for (const CutRows& chunk : chunks) now += chunk.rows.removed.size();
      removed.most = std::max(removed.most, now);
      removed.all += now;
    }
    return removed;
  }
};

TEST_F(RemovedKeysTest, AreNamedUpToTheirLimitAndUnknownBeyond) {
  (void)CutAll(&rows_);
  ComeAndGo(kRemembered);
  ASSERT_TRUE(rows_.cut().KnowsChanges(true));
  EXPECT_EQ(RemovedIn({.scope = CutScope::kChanged, .base_is_previous_cut = true}), kRemembered);
  ComeAndGo(kRemembered + 1);
  EXPECT_FALSE(rows_.cut().KnowsChanges(true));
  (void)CutAll(&rows_);
  EXPECT_TRUE(rows_.cut().KnowsChanges(true));
  EXPECT_FALSE(rows_.cut().KnowsChanges(false));  // until this cut is the base
  ComeAndGo(1);
  EXPECT_EQ(RemovedIn({.scope = CutScope::kChanged, .base_is_previous_cut = true}), 1u);
  EXPECT_TRUE(rows_.cut().KnowsChanges(false));
}

TEST_F(RemovedKeysTest, KeysOfSeveralCutsSinceTheBaseCountTogether) {
  (void)CutAll(&rows_);
  ComeAndGo(kRemembered / 2);
  (void)CutAll(&rows_, 1, {.scope = CutScope::kChanged, .base_is_previous_cut = true});
  ComeAndGo(kRemembered / 2);
  EXPECT_TRUE(rows_.cut().KnowsChanges(false));
  ComeAndGo(1);
  EXPECT_FALSE(rows_.cut().KnowsChanges(false));
  EXPECT_EQ(RemovedIn({.scope = CutScope::kChanged, .base_is_previous_cut = true}), kRemembered / 2 + 1);
}

TEST_F(RemovedKeysTest, AreNamedDespiteLostFullCuts) {
  (void)CutAll(&rows_);  // the base
  for (int lost = 0; lost < 3; ++lost) {
    ComeAndGo(kRemembered / 8);
    (void)CutAll(&rows_);
  }
  next_key_ -= 2;  // the last two come back
  Push(2);
  EXPECT_EQ(RemovedIn({.scope = CutScope::kChanged}), 3 * kRemembered / 8 - 2);
}

TEST_F(RemovedKeysTest, TakeNoMoreMemoryAfterAnyNumberOfFullCuts) {
  std::uint64_t most = 0;
  for (int round = 0; round < 200; ++round) {
    (void)CutAll(&rows_);
    ComeAndGo(kRemembered / 4);
    if (round < 20)
      most = std::max(most, rows_.memory_bytes());
    else
      ASSERT_LE(rows_.memory_bytes(), most) << "round " << round;
  }
}

TEST_F(ManyRemovedKeysTest, AreReturnedInSlices) {
  constexpr std::size_t kKeys = 20'000, kSliceBytes = 4000;
  (void)CutAll(&rows_);
  ComeAndGo(kKeys);
  (void)rows_.cut().Begin({.scope = CutScope::kChanged, .base_is_previous_cut = true});
  const RemovedKeys removed = RemovedInSlices(kSliceBytes);
  EXPECT_EQ(removed.all, kKeys);
  EXPECT_LE(removed.most, 2 * kSliceBytes / sizeof(Key));
}

TEST_F(ManyRemovedKeysTest, KeysOfLostCutsAreReturnedInSlicesToo) {
  constexpr std::size_t kKeys = 10'000, kSliceBytes = 4000;
  (void)CutAll(&rows_);  // the base
  for (int lost = 0; lost < 3; ++lost) {
    ComeAndGo(kKeys);
    (void)CutAll(&rows_, 1 << 20, {.scope = CutScope::kChanged, .base_is_previous_cut = lost == 0});
  }
  ComeAndGo(kKeys);
  (void)rows_.cut().Begin({.scope = CutScope::kChanged});
  const RemovedKeys removed = RemovedInSlices(kSliceBytes);
  EXPECT_EQ(removed.all, 4 * kKeys);
  EXPECT_LE(removed.most, 2 * kSliceBytes / sizeof(Key));
}

TEST_F(ManyRemovedKeysTest, AreNamedOnceIfTheyComeBackDuringACut) {
  constexpr std::size_t kKeys = 5000, kBack = 20;
  (void)CutAll(&rows_);
  ComeAndGo(kKeys);
  (void)rows_.cut().Begin({.scope = CutScope::kChanged, .base_is_previous_cut = true});
  std::vector<CutRows> chunks;
  Key back = 0;
  // Between slices some keys come back, whether or not the cut has named them already, and some of these expire again.
  while (!ContinueCut(&rows_, 2000, &chunks))
    if (back < kKeys) {
      next_key_ = back += kBack;
      Push(kBack / 2);
      Expire();
      while (rows_.expiry().sweeping()) rows_.expiry().Sweep(100);
      next_key_ = back + kBack / 4;
      Push(kBack / 4);
    }
  ASSERT_GT(back, kBack * 5);
  std::multiset<Key> named;
  for (const CutRows& chunk : chunks) {
    EXPECT_TRUE(chunk.rows.keys.empty());
    named.insert(chunk.rows.removed.begin(), chunk.rows.removed.end());
  }
  ASSERT_EQ(named.size(), kKeys);
  for (Key key = 0; key < kKeys; ++key) EXPECT_EQ(named.count(key), 1u) << key;
  // The next cut names the keys that expired again, and no key that has a row.
  std::vector<TableRows> tables = CutAll(&rows_, 1000, {.scope = CutScope::kChanged, .base_is_previous_cut = true});
  const PartitionRows& next = tables[0].partitions[0];
  const std::set<Key> gone(next.removed.begin(), next.removed.end());
  EXPECT_EQ(gone.size(), next.removed.size());
  for (const Key key : next.keys) EXPECT_FALSE(gone.contains(key));
  EXPECT_EQ(next.keys.size() + gone.size(), back / kBack * (kBack / 2));
}

TEST_F(ManyRemovedKeysTest, TakeNoMemoryOnceALaterCutIsTheBase) {
  (void)CutAll(&rows_);
  const CutRequest next{.scope = CutScope::kChanged, .base_is_previous_cut = true};
  ComeAndGo(50'000);
  const std::uint64_t most = rows_.memory_bytes();
  EXPECT_EQ(RemovedIn(next), 50'000u);
  EXPECT_EQ(RemovedIn(next), 0u);
  EXPECT_LT(rows_.memory_bytes(), most - 50'000 * sizeof(Key));
}

TEST_F(ManyRemovedKeysTest, AreReturnedInSlicesBeforeTheyAreSwept) {
  constexpr std::uint32_t kKeys = 100'000;
  Push(kKeys);
  (void)CutAll(&rows_);
  Expire();
  (void)rows_.cut().Begin({.scope = CutScope::kChanged, .base_is_previous_cut = true});
  std::vector<CutRows> chunks;
  while (!ContinueCut(&rows_, limits::kCutSliceBytes, &chunks)) {
  }
  std::size_t removed = 0;
  for (const CutRows& chunk : chunks) {
    removed += chunk.rows.removed.size();
    EXPECT_LE(chunk.rows.removed.size() * sizeof(Key), limits::kCutSliceBytes);
  }
  EXPECT_EQ(removed, kKeys);
}

TEST_F(RowStoreCutTest, ACutOfAnEmptyStoreIsCompleteAtOnce) {
  Store none(options_);
  EXPECT_TRUE(none.cut().Begin().empty());
  std::vector<CutRows> chunks;
  EXPECT_TRUE(ContinueCut(&none, 1, &chunks));
  EXPECT_TRUE(chunks.empty());
}

}  // namespace
}  // namespace tarn::server
