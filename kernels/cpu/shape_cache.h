// A least-recently-used cache of oneDNN's objects, by shape. Creating an object takes a fraction of a millisecond;
// batches and layers have few shapes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace tarn::kernels {

inline constexpr std::size_t kShapesMax = 256;

// Used by one thread.
template <typename Key, typename Product>
class ShapeCache {
 public:
  // The cached object of `key`, or the result of make() if there is none. Valid until the next call.
  template <typename Make>
  Product& Find(const Key& key, const Make& make) {
    auto found = products_.find(key);
    if (found == products_.end()) {
      if (products_.size() >= kShapesMax) DropOldest();
      found = products_.emplace(key, Known{make(), 0}).first;
    }
    found->second.used = ++uses_;
    return found->second.product;
  }

 private:
  struct Known {
    Product product;
    std::uint64_t used = 0;
  };

  void DropOldest() {
    products_.erase(std::ranges::min_element(products_, {}, [](const auto& item) { return item.second.used; }));
  }

  std::map<Key, Known> products_;
  std::uint64_t uses_ = 0;
};

}  // namespace tarn::kernels
