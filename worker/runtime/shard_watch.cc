#include "worker/runtime/shard_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::worker {
namespace {

constexpr TimeUs kCheckPeriodUs = 1'000'000;
constexpr std::size_t kLinesMax = 4;

// A shard that this worker has reached may delay a pull for as long as other workers are behind, but nothing else.
bool MustAnswer(const ShardWaits& waits) {
  return waits.pushes != 0 || waits.tick || waits.state || (waits.pulls != 0 && !waits.last_message);
}

// "2 pulls, 1 push and a tick".
std::string TextOf(const ShardWaits& waits) {
  std::vector<std::string> parts;
  if (waits.pulls != 0) parts.push_back(fmt::format("{} pull{}", waits.pulls, waits.pulls == 1 ? "" : "s"));
  if (waits.pushes != 0) parts.push_back(fmt::format("{} push{}", waits.pushes, waits.pushes == 1 ? "" : "es"));
  if (waits.tick) parts.emplace_back("a tick");
  if (waits.state) parts.emplace_back("a part of its state");
  std::string text = parts.back();
  parts.pop_back();
  return parts.empty() ? text : fmt::format("{} and {}", fmt::join(parts, ", "), text);
}

}  // namespace

std::vector<std::string> ShardWatch::Check(const Client& client, TimeUs now) {
  if (now < next_check_) return {};
  next_check_ = now + kCheckPeriodUs;
  listening_.Note(now, kWaitNotePeriodUs);
  const std::vector<std::string>& endpoints = client.view().routes.endpoints;
  silent_since_.resize(endpoints.size(), now);
  std::vector<std::string> lines;
  TimeUs longest = 0;
  std::size_t others = 0;
  for (std::uint32_t i = 0; i < endpoints.size(); ++i) {
    const ShardWaits waits = client.WaitsFor(ShardId(i));
    silent_since_[i] = MustAnswer(waits) ? std::max(silent_since_[i], waits.last_message.value_or(0)) : now;
    const TimeUs silence = listening_.Silence(silent_since_[i], now, kWaitNotePeriodUs);
    longest = std::max(longest, silence);
    if (silence < kWaitNotePeriodUs) continue;
    if (lines.size() == kLinesMax) {
      ++others;
      continue;
    }
    lines.push_back(fmt::format(
        "server {}: its shard {} at {} has not answered for {:.0f} s, and this worker waits for {} (is that "
        "server running, can this host reach that address, {}?)",
        i / std::max(1u, client.job_file().fleet.shards), i, endpoints[i], double(silence) * 1e-6, TextOf(waits),
        kSameKeys));
  }
  if (!notes_.IsDue(longest)) return {};
  if (others != 0) lines.back() += fmt::format("; {} more shards do not answer", others);
  return lines;
}

}  // namespace tarn::worker
