#include "net/zmq/event_wait.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "net/accepted_peers.h"
#include "net/zmq/clock.h"

namespace tarn::net {
namespace {

// The longest poll while messages to a peer of the ROUTER are queued: poll does not report room for a single peer.
constexpr int kRetryMs = 1;
// While busy polling: number of polls of shared memory per poll of files.
constexpr int kMemoryPolls = 64;

// A spin-wait hint: leaves more of the core to its other hardware thread, and reduces mis-speculation at the end of the
// loop.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

bool EventWait::Wait(TimeUs wait_us) {
  bool uninterrupted = true;
  if (wait_us > 0 && busy_poll_us_ > 0 && BusyPoll(std::min(wait_us, busy_poll_us_), &uninterrupted))
    return uninterrupted;
  if (wait_us <= 0) return Poll(0);
  const bool not_woken = wake_->BeginSleep();
  const bool sleep = shm_->Sleep() && not_woken;
  uninterrupted = Poll(sleep ? wait_us : 0);
  shm_->Awake();
  wake_->EndSleep();
  return uninterrupted;
}

bool EventWait::BusyPoll(TimeUs us, bool* uninterrupted) {
  for (const TimeUs end = NowUs() + us; NowUs() < end;) {
    for (int i = 0; i < kMemoryPolls; ++i) {
      if (shm_->Changed() || wake_->asked()) return true;
      Pause();
    }
    if (*uninterrupted = Poll(0); !*uninterrupted) return true;
    if (router_->MayHold() || links_->AnyMayHaveMessages() || shm_->NextTime() == 0 || wake_->readable()) return true;
  }
  return false;
}

bool EventWait::Poll(TimeUs wait_us) {
  constexpr TimeUs kLongestUs = TimeUs{3600} * 1'000'000;
  const int wait_ms = static_cast<int>((std::clamp<TimeUs>(wait_us, 0, kLongestUs) + 999) / 1000);
  return backlog_->empty() ? PollFiles(wait_ms) : PollSockets(wait_ms);
}

// One system call, whatever the number of sockets.
bool EventWait::PollFiles(int wait_ms) {
  PolledSocket* router = router_->socket();
  files_.clear();
  files_.push_back({wake_->file(), POLLIN, 0});
  if (router != nullptr) files_.push_back({router->file, POLLIN, 0});
  links_->ForEach([&](const LaneId&, const PolledSocket& lane) { files_.push_back({lane.file, POLLIN, 0}); });
  const std::size_t shm = files_.size();
  shm_->AddFiles(&files_);
  if (poll(files_.data(), files_.size(), wait_ms) < 0) return false;
  shm_->TakeFiles(files_.data() + shm);
  wake_->SetReadable(files_[0].revents != 0);
  std::size_t file = 1;
  if (router != nullptr) router->may_hold |= files_[file++].revents != 0;
  links_->ForEach([&](const LaneId&, PolledSocket& lane) { lane.may_hold |= files_[file++].revents != 0; });
  return true;
}

// Like PollFiles, but through zmq_poll, which also reports room in sockets with a backlog.
bool EventWait::PollSockets(int wait_ms) {
  PolledSocket* router = router_->socket();
  items_.clear();
  items_.push_back({nullptr, wake_->file(), ZMQ_POLLIN, 0});
  if (router != nullptr) items_.push_back({router->socket.raw().handle(), 0, ZMQ_POLLIN, 0});
  bool accepted_waits = false;
  backlog_->ForEachLane([&](const LaneId& id) { accepted_waits |= IsAccepted(id.peer); });
  links_->ForEach([&](const LaneId& id, PolledSocket& lane) {
    const int events = backlog_->Has(id) ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN;
    items_.push_back({lane.socket.raw().handle(), 0, static_cast<short>(events), 0});
  });
  if (accepted_waits) wait_ms = std::min(wait_ms, kRetryMs);
  const std::size_t shm = items_.size();
  files_.clear();
  shm_->AddFiles(&files_);
  for (const pollfd& file : files_) items_.push_back({nullptr, file.fd, ZMQ_POLLIN, 0});
  try {
    zmq::poll(items_, std::chrono::milliseconds(wait_ms));
  } catch (const zmq::error_t&) {
    return false;
  }
  for (std::size_t i = 0; i < files_.size(); ++i) files_[i].revents = items_[shm + i].revents;
  shm_->TakeFiles(files_.data());
  wake_->SetReadable(items_[0].revents != 0);
  std::size_t item = 1;
  if (router != nullptr) router->may_hold |= items_[item++].revents != 0;
  links_->ForEach([&](const LaneId&, PolledSocket& lane) { lane.may_hold |= items_[item++].revents != 0; });
  return true;
}

}  // namespace tarn::net
