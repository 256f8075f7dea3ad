// A worker's requests to the scheduler, each of which is repeated until it is answered. Internal to worker/; one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/message.h"
#include "core/types.h"
#include "worker/client/byte_credit.h"

namespace tarn::worker {

class RepeatedRequests {
 public:
  // The request is due at once, unless an earlier one must be answered before it is sent: an earlier barrier or lease
  // request, because the scheduler regards a newer number as the end of the older request; or a request for a
  // table of the same name.
  void Add(Body request) { requests_.push_back({std::move(request)}); }
  // The first request of this kind for which matches(request) is true; null: none.
  template <typename Kind, typename Matches>
  const Kind* Find(const Matches& matches) const {
    for (const Repeating& r : requests_)
      if (const Kind* request = std::get_if<Kind>(&r.body); request != nullptr && matches(*request)) return request;
    return nullptr;
  }
  // Ends the repeats of that request and returns it; nullopt: there is none.
  template <typename Kind, typename Matches>
  std::optional<Kind> Remove(const Matches& matches) {
    for (auto it = requests_.begin(); it != requests_.end(); ++it) {
      Kind* const request = std::get_if<Kind>(&it->body);
      if (request == nullptr || !matches(*request)) continue;
      std::optional<Kind> removed = std::move(*request);
      requests_.erase(it);
      return removed;
    }
    return std::nullopt;
  }

  // Calls send(body) for the requests that are due, in order of issue. Returns how many of them are repeats. resend_us:
  // the pause before the first repeat.
  template <typename Send>
  std::uint64_t SendDue(TimeUs now, TimeUs resend_us, const Send& send) {
    std::uint64_t repeats = 0;
    for (Repeating& r : requests_) {
      if (r.due > now || MustWait(r)) continue;
      // A joining worker may wait long for the rest of the fleet, and must then continue quickly. So the pause does not
      // grow.
      const bool joining = std::holds_alternative<Join>(r.body);
      r.due = now + RepeatPause(resend_us, joining ? 0 : r.repeats);
      if (r.repeats++ != 0) ++repeats;
      send(r.body);
    }
    return repeats;
  }
  TimeUs NextTimer() const;  // the maximum value: no request is open
  // Whether no request is open that must be answered before leaving.
  bool idle() const;
  std::uint64_t Hash(std::uint64_t seed) const;

 private:
  struct Repeating {
    Body body;
    TimeUs due = 0;  // 0: at once
    std::uint32_t repeats = 0;
  };
  bool MustWait(const Repeating& r) const;

  std::vector<Repeating> requests_;  // in order of issue
};

}  // namespace tarn::worker
