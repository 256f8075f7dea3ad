#include "sim/top_k_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tarn::sim {

float TopKModel::Take(Key key) {
  const auto it = std::ranges::find(residuals_, key, &ResidualCount::key);
  if (it == residuals_.end()) return 0;
  const float count = it->count;
  residuals_.erase(it);
  return count;
}

std::map<Key, float> TopKModel::Push(std::span<const Key> keys, std::vector<float> counts, Clock clock) {
  const std::uint64_t lifetime = spec_.life.expire_clocks;
  if (spec_.life.on && lifetime != 0)
    std::erase_if(residuals_,
                  [&](const ResidualCount& residual) { return residual.clock.value + lifetime < clock.value; });
  for (std::size_t i = 0; i < keys.size(); ++i) counts[i] += Take(keys[i]);

  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](auto a, auto b) { return std::abs(counts[a]) > std::abs(counts[b]); });
  const CompressionSpec& compression = spec_.compression;
  const double warm = double(clock.value + 1) / double(std::max<std::uint64_t>(compression.warmup_clocks, 1));
  const double share = float(std::pow(double(compression.share), std::min(warm, 1.0))) * double(keys.size());
  order.resize(std::clamp<std::size_t>(std::size_t(std::lround(share)), 1, keys.size()));
  std::map<Key, float> sent;
  for (const std::size_t i : order) sent[keys[i]] = counts[i];
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (!sent.contains(keys[i]) && counts[i] != 0) residuals_.push_back({keys[i], clock, counts[i]});
  while (residuals_.size() > ResidualRowsMax(spec_)) {
    sent[residuals_.front().key] = residuals_.front().count;
    residuals_.erase(residuals_.begin());
  }
  return sent;
}

}  // namespace tarn::sim
