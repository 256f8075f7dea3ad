// What limits messages to a shard: the bytes in flight in one direction, the pauses between repeats, and for how long
// refusals are repeated. Internal to worker/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace tarn::worker {

// Bytes that may be in flight to one shard. Pushes and pulls have a credit each, half of ClientOptions::credit_bytes:
// pulls that a shard holds back until a tick can never stop the pushes that this tick waits for.
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

// Pause before the next repeat: resend_us, doubled with every repeat in vain, up to 8 times of it.
inline TimeUs RepeatPause(TimeUs resend_us, std::uint32_t repeats) { return resend_us << std::min(repeats, 3u); }

// Pause after a refusal that may pass, much shorter at first.
inline TimeUs RefusalPause(TimeUs resend_us, std::uint32_t refusals) {
  return std::max<TimeUs>(1, (resend_us >> 5) << std::min(refusals, 7u));
}

// For how long transient refusals of one thing have gone on without progress (rule E7).
class RefusalTimer {
 public:
  // Refused at `now`. True: for `limit` already, so that no repeat will help.
  bool Refused(TimeUs now, TimeUs limit, TimeUs resend_us) {
    // After a time without refusals that is longer than repeats are apart, it starts again.
    const TimeUs longest_pause = 2 * RepeatPause(resend_us, UINT32_MAX);
    if (last_ < 0 || now - last_ > longest_pause) since_ = now;
    last_ = now;
    return now - since_ >= limit;
  }
  void Progress() { last_ = -1; }
  TimeUs since() const { return since_; }

 private:
  TimeUs since_ = 0, last_ = -1;
};

// Bytes that a message needs besides its keys and values, roughly; so that tiny messages are not free.
inline constexpr std::size_t kMessageOverheadBytes = 128;

}  // namespace tarn::worker
