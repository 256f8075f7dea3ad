// The row store's inside; included by server/row_store*.cc only. row_store.cc has the tables, row_store_rows.cc reads
// and steps rows, row_store_load.cc fills the store from a checkpoint, row_store_cut.cc copies rows for checkpoints,
// row_store_life.cc lets rows come and go, row_store_tier.cc deals with rows on disk.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/position.h"
#include "core/row_layout.h"
#include "server/bit_set.h"
#include "server/candidates.h"
#include "server/dense_range.h"
#include "server/life.h"
#include "server/removed_keys.h"
#include "server/row_index.h"
#include "server/row_slabs.h"
#include "server/row_store.h"
#include "server/standings.h"

namespace tarn::server {

// Rows have numbers from birth to removal; those of removed rows are used again.
struct RowStore::SparsePartition {
  SparsePartition(std::uint64_t salt, std::uint32_t bits, const RowLayout& layout, Arena* arena, PagePool* pages)
      : index(salt, bits, pages), slabs(arena, layout.value_words + layout.slot_words), lives(arena, kLifeWords) {}

  // The number that the next row will have.
  std::uint32_t NextNumber() const { return free.empty() ? NumberEnd() : free.back(); }
  // One past the highest number so far.
  std::uint32_t NumberEnd() const { return resident != nullptr ? tier_end : slabs.size(); }
  // Takes it.
  void TakeNumber(bool with_life);
  // The one place that knows where a row lies. Null: on disk.
  float* Row(std::uint32_t number) const {
    return resident != nullptr ? resident->Row(place, number) : slabs.Row(number);
  }
  RowLife* Life(std::uint32_t number) const { return reinterpret_cast<RowLife*>(lives.Row(number)); }
  std::uint64_t memory_bytes() const;

  static constexpr std::uint32_t kLifeWords = sizeof(RowLife) / sizeof(float);
  RowIndex index;
  RowSlabs slabs;                          // values and slots, by number; empty with a tier
  ResidentRows* resident = nullptr;        // the table's; null: no tier
  std::uint32_t place = 0;                 // there
  std::uint32_t tier_end = 0;              // numbers given out there
  RowSlabs lives;                          // by number; empty if the table has none
  std::vector<std::uint32_t> free;         // numbers of removed rows
  BitSet changed;                          // rows by number: since the last cut
  BitSet aside;                            // until the last cut, since its base
  RemovedKeys removed;                     // since that base
  std::unique_ptr<Candidates> candidates;  // null: none yet

  // Of a table whose rows expire.
  Standings standings;
  Verdicts verdicts;          // to which rows may be subject that were not taken away yet
  std::uint64_t expired = 0;  // such rows; 0: no verdicts
  bool sweep_due = false;
  bool decided_in_sweep = false;  // a verdict came while the sweep was under way
};

struct RowStore::DensePartition {
  DenseRange range;
  float* values = nullptr;  // null: not born
  float* slots = nullptr;
  BitSet changed, aside;  // as above, by place in the range
};

// The rows on disk that a cut has come across in one partition: read in the order in which they lie there.
struct RowStore::ColdWalk {
  struct Row {
    ColdId id;
    std::uint32_t number;
    Key key;
  };
  std::vector<Row> rows;
  std::size_t next = 0;       // those before it are done
  std::vector<Row> fetching;  // in order of id
};

// Rows of one partition that were copied early and then put aside on the tier's disk.
struct RowStore::AsideRows {
  std::vector<ColdId> ids;
  std::size_t next = 0;      // those before it have been handed out
  std::size_t fetching = 0;  // from there on, that are on their way
};

// One partition in a cut. Rows have numbers, or their place in a dense range.
struct RowStore::PartitionCut {
  // Of a partition that the cut has touched and not finished.
  struct State {
    BitSet settled;                    // by number: copied, or not of this cut
    std::vector<PartitionRows> early;  // what changed before the walk came to it, as it was
    AsideRows aside;                   // with a tier: and so did this
    PartitionRows chunk;               // of the walk, not yet full
    RowIndex::Walk walk;               // dense: `done` only
    std::uint64_t next = 0;            // dense: number
    ColdWalk cold;                     // with a tier
    bool done() const { return walk.done && cold.rows.empty(); }
    bool lists_kept = false;  // `seen` below has been copied
    bool lists_out = false;   // and handed out, with the keys removed
    std::vector<Seen> seen;
    RowIndex::Walk removed_walk;  // over those removed before the cut
  };
  bool open = false;       // it has something that was not handed out yet
  std::uint64_t rows = 0;  // those of the cut have lower numbers
  Verdicts verdicts;       // at the beginning of the cut
  std::unique_ptr<State> state;

  State& Touched() {
    if (!state) state = std::make_unique<State>();
    return *state;
  }
};

struct RowStore::Table {
  TableSpec spec;
  std::uint64_t salt = 0;
  Positioner position;
  RowLayout layout;
  ResidentRows* resident = nullptr;                      // with a tier, of a sparse table
  std::vector<std::unique_ptr<SparsePartition>> sparse;  // by place; null: no row yet
  std::vector<DensePartition> dense;                     // by place
  std::vector<PartitionCut> cut;                         // by place; empty: the table is in no cut

  // Of a table with a life: its rules, the time that a push counts at, and the latest boundary.
  std::optional<LifeRules> rules;
  std::uint32_t now = 0, boundary = 0;
  bool started = false;  // the time is known

  std::uint64_t not_finite = 0;  // gradients skipped (rule A5), and the key of the last one
  Key not_finite_key = 0;

  bool is_dense() const { return spec.kind == TableKind::kDense; }
  bool has_life() const { return layout.life_words != 0; }
  std::uint32_t row_words() const { return layout.words(); }
  std::size_t row_bytes() const { return row_words() * sizeof(std::uint32_t); }
  // Initial values of rows that lie one behind the other, layout.value_words each.
  void Initialize(std::span<const Key> keys, float* rows) const;
  std::uint64_t RowCount() const {
    std::uint64_t rows = 0;
    for (std::uint32_t place = 0; place < (is_dense() ? dense.size() : sparse.size()); ++place) rows += RowCount(place);
    return rows;
  }
  // Rows of the partition at a place: born, and not expired.
  std::uint64_t RowCount(std::uint32_t place) const {
    if (is_dense()) return dense[place].values != nullptr ? dense[place].range.count : 0;
    return sparse[place] ? sparse[place]->index.size() - sparse[place]->expired : 0;
  }
  // One past the highest number of a row there.
  std::uint64_t NumberEnd(std::uint32_t place) const {
    return is_dense() ? RowCount(place) : sparse[place] ? sparse[place]->NumberEnd() : 0;
  }
  RowParts DenseRow(const DensePartition& partition, std::uint64_t number) const {
    return {partition.values + number * spec.dim, partition.slots + number * layout.slot_words, nullptr};
  }
  // The row's values are null if it is on disk.
  RowParts SparseRow(const SparsePartition& partition, std::uint32_t number) const {
    float* row = partition.Row(number);
    return {row, row + layout.value_words, has_life() ? partition.Life(number) : nullptr};
  }
};

// Walks the keys of a message in order and knows the place of each one's partition.
class RowStore::Cursor {
 public:
  Cursor(const std::vector<std::uint32_t>& place, std::span<const Section> sections, std::span<const Key> keys)
      : place_(place), sections_(sections), keys_(keys) {}

  std::size_t left() const { return keys_.size() - key_; }
  // The next key.
  const Key* keys() const { return keys_.data() + key_; }
  // Goes over the next keys that are of one partition, 1 to `keys_max` of those that are left; how many, and its place.
  std::size_t Next(std::size_t keys_max, std::uint32_t* place) {
    while (in_section_ == sections_[section_].count) {
      ++section_;
      in_section_ = 0;
    }
    const Section& section = sections_[section_];
    const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(section.count - in_section_, keys_max));
    *place = place_[section.partition.value];
    in_section_ += n;
    key_ += n;
    return n;
  }

 private:
  const std::vector<std::uint32_t>& place_;
  std::span<const Section> sections_;
  std::span<const Key> keys_;
  std::size_t section_ = 0;
  std::size_t key_ = 0;
  std::uint32_t in_section_ = 0;
};

// What is brought near before a group is worked on: the values of its rows, whole rows to be changed, or the words that
// tell where they are (of tables with a tier).
enum class RowStore::Ahead { kValues, kRows, kWords };

// Some keys of a message, with what is known of each.
struct RowStore::Group {
  std::size_t n = 0;
  const Key* keys = nullptr;
  std::uint32_t places[kGroupKeys];
  // Of sparse tables: where the index is looked at, the row's number (kNone: no row), and where it lies (null: it has
  // none or is on disk).
  const RowBucket* buckets[kGroupKeys];
  std::uint32_t numbers[kGroupKeys];
  float* rows[kGroupKeys];
  std::uint32_t further[kGroupKeys];  // which keys are not in their first bucket and may be in another
  std::size_t n_further = 0;
  std::uint64_t comings = 0;  // comings_ when buckets were found
};

// Calls work(group) for the next `rows` keys of a message, group by group, with their rows found and on the way. Four
// groups are under way at once, so that what was asked for in one stage has come by the next, and is still near: the
// first lines of the index, the rows found there with the second lines for the other keys, and the rows of those. With
// a tier the words that tell where rows are, and then the rows. What work() does to one group may outdate what was
// found of the next ones: their `comings` then differ from comings_.
template <typename Work>
void RowStore::InGroups(const Table& table, Ahead ahead, std::size_t rows, Cursor* cursor, Work work) const {
  constexpr std::size_t kStages = 4;
  Group groups[kStages];
  const std::size_t n = (rows + kGroupKeys - 1) / kGroupKeys;
  for (std::size_t step = 0; step < n + kStages - 1; ++step) {
    if (step >= 2 && step - 2 < n) FindFurther(table, ahead, &groups[(step - 2) % kStages]);
    if (step < n) {
      Group* group = &groups[step % kStages];
      group->n = std::min(kGroupKeys, rows - step * kGroupKeys);
      TakeKeys(table, cursor, group);
    }
    if (step >= 1 && step - 1 < n) FindNear(table, ahead, &groups[(step - 1) % kStages]);
    if (step >= 3) work(groups[(step - 3) % kStages]);
  }
}

// Calls visit(key, row) for the rows of a partition that are on disk.
template <typename Visit>
void RowStore::ForEachCold(const Table& table, std::uint32_t place, Visit visit) const {
  constexpr std::size_t kReadRows = 4096;
  const SparsePartition& partition = *table.sparse[place];
  std::vector<ColdWalk::Row> rows;
  partition.index.ForEach([&](Key key, std::uint32_t number) {
    if (table.resident->IsCold(place, number) && !Expired(table, partition, number))
      rows.push_back({table.resident->cold_id(place, number), number, key});
  });
  std::ranges::sort(rows, {}, &ColdWalk::Row::id);
  std::vector<RowOwner> owners;
  std::vector<std::uint32_t> records;
  for (std::size_t first = 0; first < rows.size(); first += kReadRows) {
    owners.clear();
    for (std::size_t i = first; i < std::min(rows.size(), first + kReadRows); ++i)
      owners.push_back({place, rows[i].number});
    tier_->Read(table.resident, &owners, &records);
    const std::size_t words = records.size() / owners.size();
    for (std::size_t i = 0; i < owners.size(); ++i)
      visit(rows[first + i].key, PartsOf(table, partition, owners[i].number, records.data() + i * words + kOwnerWords));
  }
}

}  // namespace tarn::server
