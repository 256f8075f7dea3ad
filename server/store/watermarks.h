// The watermarks of one partition: for each worker incarnation, the sequence of the last push applied or gathered
// (rules E1, E2). Not thread-safe: the shard's thread owns them.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "core/types.h"

namespace tarn::server {

class Watermarks {
 public:
  enum class Order { kRepeated, kNext, kBeyond };

  // The watermark of a worker; 0: no push of it was accepted.
  Sequence Of(Incarnation worker) const {
    const auto at = Find(worker);
    return at != entries_.end() && at->first == worker ? at->second : Sequence{};
  }

  // Compares the sequence of a push with the watermark.
  Order Judge(Incarnation worker, Sequence sequence) const {
    const Sequence watermark = Of(worker);
    if (sequence <= watermark) return Order::kRepeated;
    return sequence.value == watermark.value + 1 ? Order::kNext : Order::kBeyond;
  }

  // Must be called when the next push is applied or gathered.
  void Advance(Incarnation worker) { Set(worker, Sequence(Of(worker).value + 1)); }

  // Sets a watermark when the state is restored from a log. 0: removes the worker.
  void Set(Incarnation worker, Sequence watermark) {
    const auto at = entries_.begin() + (Find(worker) - entries_.cbegin());
    const bool known = at != entries_.end() && at->first == worker;
    if (watermark.value == 0) {
      if (known) entries_.erase(at);
    } else if (known) {
      at->second = watermark;
    } else {
      entries_.insert(at, {worker, watermark});
    }
  }
  void Drop(Incarnation worker) { Set(worker, Sequence{}); }

  // In order of incarnation; no watermark is 0.
  const std::vector<std::pair<Incarnation, Sequence>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<Incarnation, Sequence>>::const_iterator Find(Incarnation worker) const {
    return std::ranges::lower_bound(entries_, worker, {}, &std::pair<Incarnation, Sequence>::first);
  }

  std::vector<std::pair<Incarnation, Sequence>> entries_;
};

}  // namespace tarn::server
