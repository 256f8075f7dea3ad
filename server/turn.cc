#include "server/turn.h"

#include <cstddef>
#include <utility>

namespace tarn::server {

namespace {

// Small answers are sent together, so that ZeroMQ's thread is woken once. Large ones are sent at once, so that sending
// overlaps with handling.
constexpr std::size_t kFlushBytes = 128 << 10;

}  // namespace

TimeUs HandOver(std::vector<net::Received>* batch, Shard* shard, const std::function<TimeUs()>& clock, Outbox* out,
                const std::function<void()>& flush) {
  TimeUs now = clock();
  std::size_t bytes = 0;
  for (net::Received& received : *batch) {
    const std::size_t counted = out->size();
    shard->OnMessage(received.from, std::move(received.message), now, out);
    received.message = {};  // decoded rows are much larger than a message, so at most one message keeps some
    for (std::size_t i = counted; i < out->size(); ++i) bytes += PayloadBytes((*out)[i].message);
    if (bytes >= kFlushBytes) {
      bytes = 0;
      flush();
    }
    const TimeUs later = clock();
    if (later - now < kTurnTimerUs) continue;
    now = later;
    if (now < shard->NextTimer()) continue;
    shard->OnTimer(now, out);
    bytes = 0;
    flush();
  }
  return now;
}

}  // namespace tarn::server
