// The incarnation of each process start of a worker, by the nonce of its Join, so that a repeated Join gets the same
// answer. Beyond `kept` entries, the oldest starts whose incarnations have ended are removed; if such a process joins
// again, it is a new worker.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "core/types.h"

namespace tarn::scheduler {

class ProcessStarts {
 public:
  explicit ProcessStarts(std::size_t kept) : kept_(kept) {}

  std::optional<Incarnation> Find(std::uint64_t nonce) const {
    const auto it = by_nonce_.find(nonce);
    return it == by_nonce_.end() ? std::nullopt : std::optional(it->second);
  }

  // `is_over`: whether an incarnation has ended, so that its start may be removed.
  void Add(std::uint64_t nonce, Incarnation incarnation, const std::function<bool(Incarnation)>& is_over) {
    by_nonce_[nonce] = incarnation;
    by_age_[incarnation] = nonce;
    for (auto it = by_age_.begin(); by_nonce_.size() > kept_ && it->first != incarnation;) {
      if (!is_over(it->first)) {
        ++it;
        continue;
      }
      by_nonce_.erase(it->second);
      it = by_age_.erase(it);
    }
  }

  std::size_t size() const { return by_nonce_.size(); }

 private:
  std::size_t kept_;
  std::map<std::uint64_t, Incarnation> by_nonce_;
  std::map<Incarnation, std::uint64_t> by_age_;  // the same, oldest first
};

}  // namespace tarn::scheduler
