#include "server/turn.h"

#include <utility>

namespace tarn::server {

TimeUs HandOver(std::vector<net::Received>* batch, Shard* shard, const std::function<TimeUs()>& clock, Outbox* out,
                const std::function<void()>& flush) {
  TimeUs now = clock();
  for (net::Received& received : *batch) {
    shard->OnMessage(received.from, std::move(received.message), now, out);
    received.message = {};  // decoded rows are much larger than a message, so at most one message keeps some
    const TimeUs later = clock();
    if (later - now < kTurnTimerUs) continue;
    now = later;
    if (now < shard->NextTimer()) continue;
    shard->OnTimer(now, out);
    flush();
  }
  return now;
}

}  // namespace tarn::server
