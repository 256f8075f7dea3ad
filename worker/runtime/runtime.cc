#include "worker/runtime/runtime.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "core/log.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kReceiveMax = 256;

}  // namespace

Runtime::~Runtime() {
  if (driver_ == nullptr) return;
  RequestEnd();
  if (thread_.joinable()) thread_.join();  // StartThread may have thrown
  driver_->Close();
}

TimeUs Runtime::Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

Status Runtime::Start(const std::string& scheduler) {
  scheduler_ = scheduler;
  TARN_RETURN_IF_ERROR(transport_->Connect(kSchedulerPeer, scheduler));
  client_.Start(Now(), &outbox_);
  return {};
}

bool Runtime::Act() {
  try {
    if (exhausted_) throw std::bad_alloc();
    StartPosted();
    Status status = ConnectShards();
    transport_->Send(outbox_);
    outbox_.clear();
    if (status) status = CheckClient();
    if (status) {
      for (const std::string& line : shard_watch_.Check(client_, Now())) LogWarning("{}", line);
      return true;
    }
    End(status.error());
  } catch (const std::bad_alloc&) {
    if (driver_ == nullptr) throw;
    // Ends the client: the caller of this turn need not be the one whose request exhausted the memory.
    End({ErrorCode::kIo, "out of memory"});
  }
  return false;
}

void Runtime::Exchange(TimeUs at_most) {
  try {
    const TimeUs begin = Now();
    const TimeUs wait = std::clamp<TimeUs>(client_.NextTimer() - begin, 0, std::min(kWaitMaxUs, at_most));
    transport_->Receive(&received_, kReceiveMax, wait);
    const TimeUs now = Now();
    waited_us_ = now - begin;
    for (net::Received& r : received_) client_.Handle(r.from, std::move(r.message), now);
    if (!received_.empty()) client_.Settle(now, &outbox_);
    received_.clear();
    if (now >= client_.NextTimer()) client_.OnTimer(now, &outbox_);
  } catch (const std::bad_alloc&) {
    received_.clear();  // its messages are neither handled again, nor keep payloads that the transport has lent
    if (driver_ == nullptr) throw;
    exhausted_ = true;
  }
}

void Runtime::StartPosted() {
  starting_ = posted_.Take();
  if (starting_.empty()) return;
  const TimeUs now = Now();
  for (const std::shared_ptr<Request>& request : starting_) request->Start(&client_, now, &outbox_);
  starting_.clear();
}

Status Runtime::ConnectShards() {
  const View& view = client_.view();
  if (view.version == connected_view_) return {};
  connected_view_ = view.version;
  transport_->SetLanes(client_.job_file().fleet.lanes);
  transport_->SetBusyPoll(client_.job_file().fleet.busy_poll_us);
  for (std::uint32_t i = 0; i < view.routes.endpoints.size(); ++i)
    TARN_RETURN_IF_ERROR(transport_->Connect(ShardPeer(ShardId(i)), view.routes.endpoints[i]));
  return {};
}

// Returns the reason why the client has ended; no error while it continues.
Status Runtime::CheckClient() const {
  switch (client_.state()) {
    case ClientState::kJoining:
    case ClientState::kRunning:
      if (stop_) return Fail(ErrorCode::kCancelled, "the program has ended the client");
      return client_.scheduler().Check(Now(), scheduler_);
    case ClientState::kFenced: return Fail(ErrorCode::kFenced, "this worker was declared dead; connect anew");
    case ClientState::kStopped: break;
  }
  return std::unexpected(client_.WhyEnded());
}

void Runtime::End(const Error& error) {
  const PostedRequests::Requests posted = posted_.End(error);
  client_.FailAll(error);
  for (const std::shared_ptr<Request>& request : starting_) request->Abort(error);
  for (const std::shared_ptr<Request>& request : posted) request->Abort(error);
  starting_.clear();
}

void Runtime::StartThread() {
  driver_ = std::make_shared<ClientDriver>(this);
  thread_ = std::thread([this] { driver_->Run(); });
}

void Runtime::RequestEnd() {
  stop_ = true;
  Wake();
  driver_->Disturb();
}

void Runtime::Submit(std::span<const std::shared_ptr<Request>> requests, bool may_wait) {
  for (const auto& request : requests) request->MarkSubmitted(request, driver_);
  const auto first = posted_.Post(requests);
  if (!first) {
    for (const auto& request : requests) request->Abort(first.error());
    return;
  }
  // If other requests already wait, their first one has woken the loop, which starts them all together.
  if (!driver_->TryAct(may_wait) && *first) Wake();
}

}  // namespace tarn::worker
