// Limits of the messages to a shard: bytes in flight in one direction, pauses between repeats, and the time for which
// rejected requests are repeated. Internal to worker/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace tarn::worker {

// The bytes that may be in flight to one shard. Pushes and pulls have separate credits, each half of
// ClientOptions::credit_bytes. So pulls that a shard delays until a tick cannot block the pushes that must precede this
// tick.
class ByteCredit {
 public:
  explicit ByteCredit(std::size_t limit) : limit_(limit) {}
  bool Fits(std::size_t bytes) const { return in_flight_ + bytes <= limit_; }
  void Take(std::size_t bytes) { in_flight_ += bytes; }
  void Return(std::size_t bytes) { in_flight_ -= bytes; }
  std::size_t in_flight() const { return in_flight_; }

 private:
  std::size_t limit_;
  std::size_t in_flight_ = 0;
};

// Pause before the next repeat: resend_us, doubled after every unanswered repeat, up to 8 * resend_us.
inline TimeUs RepeatPause(TimeUs resend_us, std::uint32_t repeats) { return resend_us << std::min(repeats, 3u); }

// Pause after a transient rejection: resend_us / 32 at first, doubled after every rejection, up to 4 * resend_us.
inline TimeUs RefusalPause(TimeUs resend_us, std::uint32_t refusals) {
  return std::max<TimeUs>(1, (resend_us >> 5) << std::min(refusals, 7u));
}

// Measures how long a request has been rejected with transient errors (rule E7).
class RefusalTimer {
 public:
  // Records a rejection at `now`. Returns true if rejections have lasted for `limit`, so that repeats are useless.
  bool Refused(TimeUs now, TimeUs limit, TimeUs resend_us) {
    // A gap of more than twice the longest pause between repeats restarts the measurement.
    const TimeUs gap_max = 2 * RepeatPause(resend_us, UINT32_MAX);
    if (last_ < 0 || now - last_ > gap_max) since_ = now;
    last_ = now;
    return now - since_ >= limit;
  }
  // Restarts the measurement at the next rejection.
  void Progress() { last_ = -1; }
  TimeUs since() const { return since_; }  // time of the first rejection

 private:
  TimeUs since_ = 0, last_ = -1;
};

// Approximate bytes of a message besides its keys and values, so that small messages also cost credit.
inline constexpr std::size_t kMessageOverheadBytes = 128;

}  // namespace tarn::worker
