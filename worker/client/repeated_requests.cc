#include "worker/client/repeated_requests.h"

#include <algorithm>

#include "core/hash.h"
#include "worker/client/client_context.h"

namespace tarn::worker {

bool RepeatedRequests::MustWait(const Repeating& r) const {
  const auto* table = std::get_if<CreateTable>(&r.body);
  const bool one_by_one = std::holds_alternative<LeaseRequest>(r.body) || std::holds_alternative<Barrier>(r.body);
  if (table == nullptr && !one_by_one) return false;
  const auto same = [&](const Repeating& other) {
    if (other.body.index() != r.body.index()) return false;
    return table == nullptr || std::get<CreateTable>(other.body).spec.name == table->spec.name;
  };
  return &r != &*std::find_if(requests_.begin(), requests_.end(), same);
}

TimeUs RepeatedRequests::NextTimer() const {
  TimeUs next = kNever;
  for (const Repeating& r : requests_)
    if (!MustWait(r)) next = std::min(next, r.due);
  return next;
}

bool RepeatedRequests::idle() const {
  return std::all_of(requests_.begin(), requests_.end(), [](const Repeating& r) {
    return std::holds_alternative<Leave>(r.body) || std::holds_alternative<CheckpointPart>(r.body) ||
           std::holds_alternative<CheckpointRequest>(r.body);
  });
}

std::uint64_t RepeatedRequests::Hash(std::uint64_t seed) const {
  for (const Repeating& r : requests_) seed = HashCombine(HashCombine(seed, r.body.index()), r.due);
  return seed;
}

}  // namespace tarn::worker
