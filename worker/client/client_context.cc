#include "worker/client/client_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::worker {
namespace {

constexpr int kCounterBits = 40;

}  // namespace

Refusal RefusalOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFenced: return Refusal::kFenced;
    case ErrorCode::kStaleEpoch:
    case ErrorCode::kOutOfOrder:
    case ErrorCode::kWrongShard:  // until the newer route map arrives
    case ErrorCode::kNotFound:    // the shard has not yet received a table of our view
    case ErrorCode::kOverloaded:
    case ErrorCode::kUnavailable:
    case ErrorCode::kTimeout:
    case ErrorCode::kUnknownKeys: return Refusal::kTransient;
    default: return Refusal::kFinal;
  }
}

RequestId ClientContext::NewRequest() { return RequestId(welcome.incarnation.value << kCounterBits | next_request_++); }

bool ClientContext::IsOurs(RequestId request) const {
  const std::uint64_t upper = welcome.incarnation.value << kCounterBits;
  const std::uint64_t counter = request.value - upper;
  return request.value >= upper && counter >= 1 && counter < next_request_;
}

void ClientContext::Send(Peer to, Body body, Buffer values) {
  const std::uint32_t rank = state == ClientState::kJoining ? options.rank : welcome.rank;
  Outgoing& outgoing = out->emplace_back();
  outgoing.to = to;
  Message& message = outgoing.message;
  message.job = job;
  message.sender = {Role::kWorker, rank, welcome.incarnation};
  message.epoch = view.routes.epoch;
  message.body = std::move(body);
  message.values = std::move(values);
}

void ClientContext::AdoptView(const View& next) {
  const std::vector<std::string>&before = view.routes.endpoints, &after = next.routes.endpoints;
  shard_messages.resize(after.size());
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i)
    if (before[i] != after[i]) shard_messages[i].reset();
  view = next;
}

std::string ClientContext::RefusalText(ShardId shard, const std::string& what, const std::string& why,
                                       TimeUs since) const {
  const std::string lasting = now > since ? fmt::format(" for {:.1f} seconds", double(now - since) * 1e-6) : "";
  return fmt::format("shard {} has refused {}{}: {}", shard.value, what, lasting, why);
}

std::string ClientContext::NameOf(TableId table) const {
  const auto spec = tables.find(table);
  return spec == tables.end() ? fmt::format("table {}", table.value) : fmt::format("table '{}'", spec->second.name);
}

void ClientContext::Stop(ErrorCode code, std::string reason) {
  state = code == ErrorCode::kFenced ? ClientState::kFenced : ClientState::kStopped;
  stop_reason = {code, std::move(reason)};
}

void ClientContext::CountStaleness(std::uint64_t clocks) {
  const std::size_t bucket = std::min<std::uint64_t>(clocks, limits::kStalenessBucketsMax - 1);
  if (staleness.size() <= bucket) staleness.resize(bucket + 1);
  ++staleness[bucket];
}

}  // namespace tarn::worker
