#include "kernels/hot_rows.h"

#include "bench/gpu_bench/parts.h"
#include "core/hash.h"

namespace tarn::bench {
namespace {

constexpr std::uint32_t kDim = 64;  // as in published measurements of similar caches

// A cache filled to `share` of its capacity, and a batch of the keys inserted last, in random order.
class FilledCache {
 public:
  FilledCache(Place& place, const Sizes& sizes, double share)
      : place_(place),
        keys_at_once_(sizes.hot_keys),
        cache_(place.MakeHotRows({.dim = kDim, .rows = sizes.hot_rows, .batch_keys_max = sizes.hot_keys})),
        slots_(place.Allocate(keys_at_once_ * sizeof(std::uint32_t), "slots")),
        missing_(place.Allocate(keys_at_once_ * sizeof(std::uint32_t), "the missing keys")),
        count_(place.Allocate(sizeof(std::uint32_t), "a count")),
        rows_(place.Floats(std::size_t{keys_at_once_} * kDim, "rows")) {
    const auto wanted = static_cast<std::uint64_t>(double(cache_->capacity()) * share);
    const std::vector<std::uint32_t> absent(keys_at_once_, kernels::kNoSlot);
    std::vector<Key> keys(keys_at_once_);
    for (std::uint64_t at = 0; at < wanted || at == 0; at += keys_at_once_) {
      for (std::uint32_t i = 0; i < keys_at_once_; ++i) keys[i] = Mix64(at + i);
      keys_ = place.Upload(keys, "keys");
      place.Upload(absent.data(), absent.size() * sizeof(std::uint32_t), slots_.as<std::uint32_t>());
      cache_->Insert(keys_at_once_, keys_.as<Key>(), Clock(0), slots_.as<std::uint32_t>());
      cache_->Fill(keys_at_once_, nullptr, slots_.as<std::uint32_t>(), rows_.as<float>(), Clock(0));
      cache_->Unpin(keys_at_once_, slots_.as<std::uint32_t>());
      place.Wait();
    }
    // Shuffled, so that look-ups are not in the order of insertion.
    SplitMix random(1);
    for (std::size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[random.Below(i)]);
    keys_ = place.Upload(keys, "keys");
  }

  // Leaves the found rows pinned, which has no effect because no rows are inserted afterwards.
  void Find() {
    cache_->Find(keys_at_once_, keys_.as<Key>(), Clock(0), slots_.as<std::uint32_t>(), missing_.as<std::uint32_t>(),
                 count_.as<std::uint32_t>());
  }
  void Read() { cache_->Read(keys_at_once_, slots_.as<std::uint32_t>(), rows_.as<float>()); }

  double found_share() {
    return 1 - double(place_.Download(count_.as<std::uint32_t>(), 1).front()) / double(keys_at_once_);
  }
  std::uint64_t capacity() const { return cache_->capacity(); }

 private:
  Place& place_;
  std::uint32_t keys_at_once_;
  std::unique_ptr<kernels::HotRows> cache_;
  Array slots_, missing_, count_, rows_, keys_;
};

}  // namespace

void MeasureHotRows(const Run& run) {
  for (const auto& [share, suffix] : {std::pair{0.5, ""}, {1.0, "_full"}}) {
    FilledCache filled(run.place, run.sizes, share);
    const auto report = [&](const char* name, double seconds) {
      run.Report(
          std::string(name) + suffix, double(run.sizes.hot_keys) / seconds, "keys/s",
          {{"dim", std::uint64_t{kDim}}, {"rows", filled.capacity()}, {"keys", std::uint64_t{run.sizes.hot_keys}}},
          {{"filled", share}, {"found", filled.found_share()}});
    };
    report("hot_rows.find", SecondsOf(run.place, run.timing, [&] { filled.Find(); }));
    report("hot_rows.find_and_read", SecondsOf(run.place, run.timing, [&] { filled.Find(), filled.Read(); }));
  }
}

}  // namespace tarn::bench
