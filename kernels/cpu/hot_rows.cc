#include "kernels/hot_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/hot_rows_layout.h"

namespace tarn::kernels {
namespace {

static_assert(kNoSlot == hot::kNone);

constexpr std::size_t kAhead = 8;  // digests are prefetched this many keys ahead, rows this many slots ahead

class HostHotRows final : public HotRows {
 public:
  HostHotRows(const HotRowsOptions& options, std::uint32_t buckets)
      : batch_keys_max_(options.batch_keys_max),
        rows_(std::make_unique_for_overwrite<float[]>(std::size_t{buckets} * hot::kWays * options.dim)),
        digests_(std::size_t{buckets} * hot::kWays, hot::kNoDigest),
        slots_(digests_.size()) {
    table_ = {.dim = options.dim,
              .buckets = buckets,
              .counts = options.score == HotScore::kLfu,
              .digests = digests_.data(),
              .slots = slots_.data(),
              .rows = rows_.get()};
  }

  void Find(std::size_t n, const Key* keys, Clock least, std::uint32_t* slots, std::uint32_t* missing,
            std::uint32_t* missing_count) override {
    TARN_CHECK(n <= batch_keys_max_, "a batch has at most batch_keys_max keys");
    ++now_;
    *missing_count = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) FetchDigests(keys[i + kAhead]);
      const std::uint32_t slot = SlotOf(keys[i]);
      const bool hit = slot != kNoSlot && hot::IsYoungEnough(table_.slots[slot].stamp, least.value);
      slots[i] = hit ? slot : kNoSlot;
      if (!hit) {
        missing[(*missing_count)++] = static_cast<std::uint32_t>(i);
        continue;
      }
      hot::Slot& found = table_.slots[slot];
      ++found.pins;
      found.score = hot::NextScore(table_.counts, found.score, now_);
    }
  }

  void Insert(std::size_t n, const Key* keys, Clock least, std::uint32_t* slots) override {
    TARN_CHECK(n <= batch_keys_max_, "a batch has at most batch_keys_max keys");
    for (std::size_t i = 0; i < n; ++i)
      if (slots[i] == kNoSlot && SlotOf(keys[i]) != kNoSlot) slots[i] = Place(keys[i], least);
    for (std::size_t i = 0; i < n; ++i)
      if (slots[i] == kNoSlot) slots[i] = Place(keys[i], least);
  }

  void Fill(std::size_t n, const std::uint32_t* positions, const std::uint32_t* slots, const float* rows,
            Clock version) override {
    for (std::size_t j = 0; j < n; ++j) {
      const std::uint32_t slot = slots[positions == nullptr ? j : positions[j]];
      if (slot == kNoSlot) continue;
      std::memcpy(RowAt(slot), rows + j * table_.dim, table_.dim * sizeof(float));
      table_.slots[slot].stamp = version.value + 1;
    }
  }

  void Read(std::size_t n, const std::uint32_t* slots, float* out) override {
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kAhead < n && slots[i + kAhead] != kNoSlot) __builtin_prefetch(RowAt(slots[i + kAhead]));
      if (slots[i] != kNoSlot) std::memcpy(out + i * table_.dim, RowAt(slots[i]), table_.dim * sizeof(float));
    }
  }

  void Oldest(std::size_t n, const std::uint32_t* slots, std::uint64_t* oldest) override {
    *oldest = ~std::uint64_t{0};
    for (std::size_t i = 0; i < n; ++i)
      if (slots[i] != kNoSlot) *oldest = std::min(*oldest, table_.slots[slots[i]].stamp - 1);
  }

  void Unpin(std::size_t n, const std::uint32_t* slots) override {
    for (std::size_t i = 0; i < n; ++i) {
      if (slots[i] == kNoSlot) continue;
      TARN_CHECK(table_.slots[slots[i]].pins != 0, "an unpinned slot was pinned");
      --table_.slots[slots[i]].pins;
    }
  }

  void Evict(std::size_t n, const Key* keys) override {
    for (std::size_t i = 0; i < n; ++i)
      if (const std::uint32_t slot = SlotOf(keys[i]); slot != kNoSlot) table_.digests[slot] = hot::kNoDigest;
  }

  void Clear() override { std::fill(digests_.begin(), digests_.end(), hot::kNoDigest); }

  void Age() override {
    if (!table_.counts) return;
    for (hot::Slot& slot : slots_) slot.score /= 2;
  }

  const float* rows() const override { return table_.rows; }
  std::uint64_t capacity() const override { return digests_.size(); }

 private:
  float* RowAt(std::uint32_t slot) const { return table_.rows + std::size_t{slot} * table_.dim; }

  void FetchDigests(Key key) const {
    const std::uint8_t* digests =
        table_.digests + std::size_t{hot::BucketOf(hot::HashOf(key), table_.buckets)} * hot::kWays;
    __builtin_prefetch(digests);
    __builtin_prefetch(digests + hot::kWays / 2);
  }

  // The slot of `key`, or kNoSlot.
  std::uint32_t SlotOf(Key key) const {
    const std::uint64_t hash = hot::HashOf(key);
    const std::uint8_t* digests = table_.digests + std::size_t{hot::BucketOf(hash, table_.buckets)} * hot::kWays;
    const std::uint8_t* end = digests + hot::kWays;
    while ((digests = static_cast<const std::uint8_t*>(
                std::memchr(digests, hot::DigestOf(hash), static_cast<std::size_t>(end - digests)))) != nullptr) {
      const auto slot = static_cast<std::uint32_t>(digests - table_.digests);
      if (table_.slots[slot].key == key) return slot;
      ++digests;
    }
    return kNoSlot;
  }

  // The slot of the bucket with the lowest rank; kNoSlot if all are pinned.
  std::uint32_t Victim(std::uint32_t bucket, Clock least) const {
    std::uint64_t lowest = hot::kPinned;
    std::uint32_t victim = kNoSlot;
    for (std::uint32_t slot = bucket * hot::kWays; slot < (bucket + 1) * hot::kWays; ++slot) {
      const std::uint64_t rank = hot::RankOf(table_.digests[slot], table_.slots[slot], least.value);
      if (rank < lowest) lowest = rank, victim = slot;
      if (rank == 0) break;  // free
    }
    return victim;
  }

  // A pinned slot for a future row of `key`, or kNoSlot.
  std::uint32_t Place(Key key, Clock least) {
    const std::uint64_t hash = hot::HashOf(key);
    const std::uint32_t older = SlotOf(key);
    const bool reuse = older != kNoSlot && table_.slots[older].pins == 0;  // its slot can hold the new row
    const std::uint32_t score = older == kNoSlot ? hot::FirstScore(table_.counts, now_)
                                                 : hot::NextScore(table_.counts, table_.slots[older].score, now_);
    if (older != kNoSlot && !reuse) table_.digests[older] = hot::kNoDigest;
    const std::uint32_t slot = reuse ? older : Victim(hot::BucketOf(hash, table_.buckets), least);
    if (slot == kNoSlot) return kNoSlot;
    table_.digests[slot] = hot::DigestOf(hash);
    table_.slots[slot] = {.key = key, .stamp = least.value + 1, .score = score, .pins = 1};
    return slot;
  }

  hot::Table table_;
  std::uint32_t batch_keys_max_;
  std::uint32_t now_ = 0;          // number of Finds so far
  std::unique_ptr<float[]> rows_;  // allocated first, because it fails first if memory is short
  std::vector<std::uint8_t> digests_;
  std::vector<hot::Slot> slots_;
};

}  // namespace

std::unique_ptr<HotRows> MakeHotRows(const HotRowsOptions& options) {
  TARN_CHECK(options.batch_keys_max < (1u << 31), "positions have 31 bits");
  return std::make_unique<HostHotRows>(options, hot::BucketsFor(options.rows));
}

}  // namespace tarn::kernels
