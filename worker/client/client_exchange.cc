#include "worker/client/client_exchange.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tarn::worker {
namespace {

constexpr std::size_t kReceiveMax = 256;

}  // namespace

TimeUs ClientExchange::Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

Status ClientExchange::Start(const std::string& scheduler) {
  scheduler_ = scheduler;
  TARN_RETURN_IF_ERROR(transport_->Connect(kSchedulerPeer, scheduler));
  client_.Start(Now(), &outbox_);
  return {};
}

void ClientExchange::Send() {
  transport_->Send(outbox_);
  outbox_.clear();
}

void ClientExchange::Wait(TimeUs at_most) {
  const TimeUs wait = std::clamp<TimeUs>(client_.NextTimer() - Now(), 0, std::min(kWaitMaxUs, at_most));
  transport_->Receive(&received_, kReceiveMax, wait);
}

void ClientExchange::Accept() {
  for (net::Received& r : received_) client_.Hear(r.from, std::move(r.message), Now());
  if (!received_.empty()) client_.Settle(Now(), &outbox_);
  received_.clear();
  if (const TimeUs now = Now(); now >= client_.NextTimer()) client_.OnTimer(now, &outbox_);
}

Expected<bool> ClientExchange::ConnectShards() {
  const View& view = client_.view();
  if (view.version == connected_view_) return false;
  connected_view_ = view.version;
  transport_->SetLanes(client_.lanes());
  for (std::uint32_t i = 0; i < view.routes.endpoints.size(); ++i)
    TARN_RETURN_IF_ERROR(transport_->Connect(ShardPeer(ShardId(i)), view.routes.endpoints[i]));
  return true;
}

}  // namespace tarn::worker
