#include "net/shm_peers.h"

#include <fmt/format.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/limits.h"
#include "core/log.h"

namespace tarn::net {
namespace {

constexpr TimeUs kRequestPeriodUs = 1'000'000, kRequestPeriodUsMax = 64'000'000;
constexpr TimeUs kSendRetryUs = 10'000;  // when ZeroMQ accepts no handshake message
// How long a channel waits for Switch, the last message that the other side sends by ZeroMQ.
constexpr TimeUs kSwitchTimeoutUs = 10'000'000;
constexpr std::size_t kEndsAtOnce = 16;        // the next poll reports further ones
constexpr TimeUs kListenPeriodUs = 1'000'000;  // between attempts to accept while no descriptor is free

}  // namespace

void ShmPeers::Open() {
  if (listener_) return;
  auto listener = ShmListener::Open(options_.ring_bytes, options_.wake_file);
  if (listener)
    listener_.emplace(std::move(*listener));
  else
    LogInfo("{}; continuing over the network", listener.error().message);
}

void ShmPeers::Request(Peer peer) {
  if (boot_id_.empty()) return;
  peers_[peer].requests = true;
  next_time_ = 0;
}

std::size_t ShmPeers::Forget(Peer peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return 0;
  const std::size_t lost = End(&found->second);
  peers_.erase(found);
  return lost;
}

// A peer to which this process connected is identified by its number, an incoming one by its messages.
std::string ShmPeers::NameOf(Peer peer, const State& state) {
  if (peer == kSchedulerPeer) return "the scheduler";
  if (peer.value < kFirstAcceptedPeer) return fmt::format("shard {}", peer.value - ShardPeer(ShardId(0)).value);
  if (!state.sender) return fmt::format("client {}", peer.value - kFirstAcceptedPeer);
  return fmt::format("{} {}", state.sender->role == Role::kWorker ? "worker" : "client", state.sender->rank);
}

void ShmPeers::Identify(Peer peer, const Sender& sender) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || found->second.sender) return;
  found->second.sender = sender;
  if (found->second.channel) LogChannel(peer, found->second);
  UpdateUnidentified();
}

void ShmPeers::UpdateUnidentified() {
  has_unidentified_ = std::any_of(peers_.begin(), peers_.end(),
                                  [](const auto& p) { return p.second.channel && IsUnidentified(p.first, p.second); });
}

bool ShmPeers::IsUnidentified(Peer peer, const State& state) {
  return peer.value >= kFirstAcceptedPeer && !state.sender;
}

void ShmPeers::LogChannel(Peer peer, const State& state) {
  LogInfo("shared memory with {}, two rings of {} KiB", NameOf(peer, state), state.channel->ring_bytes() >> 10);
}

// Drops the channel with its waiting messages, and returns their number.
std::size_t ShmPeers::End(State* state) {
  const std::size_t lost = state->channel ? state->channel->waiting_messages() : 0;
  if (state->channel) {
    // A forked process may have a copy of the socket, so closing it neither removes it from the epoll nor shows the
    // other side this end.
    epoll_ctl(ends_.get(), EPOLL_CTL_DEL, state->channel->file(), nullptr);
    shutdown(state->channel->file(), SHUT_RDWR);
  }
  state->channel.reset();
  state->connector.reset();
  state->readable = state->must_switch = state->reads = state->writes = state->peer_switched = false;
  return lost;
}

// Only the side that connected requests shared memory.
void ShmPeers::RequestLater(Peer peer, State* state, TimeUs now) {
  if (peer.value >= kFirstAcceptedPeer) return;
  state->requests = true;
  state->pause = std::clamp(2 * state->pause, kRequestPeriodUs, kRequestPeriodUsMax);
  state->next_request = now + state->pause;
  Schedule(state->next_request);
}

void ShmPeers::OnHandshake(Peer from, const ShmHandshake& handshake, TimeUs now) {
  if (handshake.kind == ShmHandshake::Kind::kRequest) return OnRequest(from, handshake.socket);
  const auto found = peers_.find(from);
  if (found == peers_.end()) return;
  State& state = found->second;
  if (handshake.kind == ShmHandshake::Kind::kSwitch) {
    state.peer_switched = state.channel.has_value();
    next_time_ = 0;
  } else if (state.requests) {
    state.requests = false;
    if (handshake.kind == ShmHandshake::Kind::kOffer) OnOffer(from, handshake);
    if (!state.connector) RequestLater(from, &state, now);
  }
}

void ShmPeers::OnRequest(Peer from, const std::string& boot_id) {
  ShmHandshake answer;
  if (listener_ && !boot_id.empty() && boot_id == boot_id_ && channels() < limits::kShmLanesMax)
    answer = {.kind = ShmHandshake::Kind::kOffer, .socket = listener_->name(), .ticket = listener_->TicketFor(from)};
  send_(from, answer);  // if it is lost, the peer repeats its request
}

void ShmPeers::OnOffer(Peer from, const ShmHandshake& handshake) {
  auto connector = ShmConnector::Connect(handshake.socket, handshake.ticket, options_.wake_file);
  if (connector)
    peers_[from].connector.emplace(std::move(*connector));
  else
    LogInfo("shared memory: the socket of {} {}; continuing over the network", NameOf(from, peers_[from]),
            connector.error().message);
}

// After the other side's end, every poll reports the socket until End removes it.
bool ShmPeers::WatchEnd(Peer peer, const ShmChannel& channel) {
  if (ends_.get() < 0) ends_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = peer.value}};
  return epoll_ctl(ends_.get(), EPOLL_CTL_ADD, channel.file(), &event) == 0;
}

void ShmPeers::TakeEnds() {
  std::array<epoll_event, kEndsAtOnce> events;
  const int n = epoll_wait(ends_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < n; ++i) {
    const auto found = peers_.find(Peer(events[static_cast<std::size_t>(i)].data.u64));
    if (found == peers_.end()) continue;
    found->second.readable = true;
    next_time_ = 0;
  }
}

// False: the socket cannot be watched, and the channel is dropped.
bool ShmPeers::AddChannel(Peer peer, State* state, ShmChannel channel, TimeUs now) {
  End(state);
  state->requests = false;
  if (!WatchEnd(peer, channel)) {
    const int error = errno;
    static LogLimiter limiter;
    LogWarning(limiter, "shared memory with {}: cannot watch it: {}; continuing over the network", NameOf(peer, *state),
               std::strerror(error));
    RequestLater(peer, state, now);
    return false;
  }
  state->channel.emplace(std::move(channel));
  if (options_.lends) state->channel->SetLending();
  if (IsUnidentified(peer, *state))
    has_unidentified_ = true;
  else
    LogChannel(peer, *state);
  state->switch_deadline = now + kSwitchTimeoutUs;
  Schedule(state->switch_deadline);
  return true;
}

void ShmPeers::PollConnector(Peer peer, State* state, TimeUs now) {
  auto channel = state->connector->Take();
  if (!channel) return;
  if (*channel) {
    state->must_switch = AddChannel(peer, state, std::move(**channel), now);
    return;
  }
  LogInfo("shared memory: {} {}; continuing over the network", NameOf(peer, *state), channel->error().message);
  state->connector.reset();
  RequestLater(peer, state, now);
}

std::size_t ShmPeers::StepAll(TimeUs now) {
  next_time_ = INT64_MAX;
  waiting_ = false;
  std::size_t lost = 0;
  if (std::exchange(arrivals_, false)) {
    // More peers may have received an offer than there is room for.
    listener_->Take(limits::kShmLanesMax - std::min(limits::kShmLanesMax, channels()),
                    [&](Peer peer, ShmChannel channel) {
                      if (peers_.contains(peer)) lost += End(&peers_[peer]);
                      AddChannel(peer, &peers_[peer], std::move(channel), now);
                    });
  }
  if (listener_ && !listener_->listens()) {
    if (now >= listen_at_) {
      listener_->Listen();
      listen_at_ = now + kListenPeriodUs;
    }
    Schedule(listen_at_);
  }
  for (auto& [peer, state] : peers_) {
    StepOne(peer, &state, now);
    const bool over =
        state.channel && (state.channel->ended() || (!state.peer_switched && now >= state.switch_deadline));
    if (!over) continue;
    LogInfo("shared memory with {} has ended", NameOf(peer, state));
    lost += End(&state);
    RequestLater(peer, &state, now);
  }
  std::erase_if(peers_, [](const auto& p) { return !p.second.requests && !p.second.connector && !p.second.channel; });
  UpdateUnidentified();
  return lost;
}

void ShmPeers::StepOne(Peer peer, State* state, TimeUs now) {
  if (state->requests) {
    if (now >= state->next_request)
      state->next_request = now + (send_(peer, {.kind = ShmHandshake::Kind::kRequest, .socket = boot_id_, .ticket = {}})
                                       ? std::max(state->pause, kRequestPeriodUs)
                                       : kSendRetryUs);
    return Schedule(state->next_request);
  }
  const bool readable = std::exchange(state->readable, false);
  if (state->connector && readable) PollConnector(peer, state, now);
  if (!state->channel) return;
  if (readable) state->channel->TakeEnd();
  if (!state->reads && (state->peer_switched || state->channel->gone())) {
    state->reads = true;
    state->pause = 0;
    state->must_switch |= !state->writes && !state->channel->gone();
  }
  if (!state->peer_switched) Schedule(state->switch_deadline);
  if (state->must_switch) {
    state->writes = send_(peer, {.kind = ShmHandshake::Kind::kSwitch, .socket = {}, .ticket = {}});
    state->must_switch = !state->writes;
    if (state->must_switch) Schedule(now + kSendRetryUs);
  }
  if (state->writes) state->channel->Flush();
  waiting_ |= state->channel->waiting_bytes() != 0;
}

void ShmPeers::AddFiles(std::vector<pollfd>* files) const {
  if (ends_.get() >= 0) files->push_back({ends_.get(), POLLIN, 0});
  if (listener_) listener_->AddFiles(files);
  for (const auto& [peer, state] : peers_) {
    if (state.connector) files->push_back({state.connector->file(), POLLIN, 0});
  }
}

void ShmPeers::TakeFiles(const pollfd* files) {
  if (ends_.get() >= 0 && (files++)->revents != 0) TakeEnds();
  if (listener_)
    for (std::size_t left = listener_->files(); left > 0; --left) arrivals_ |= (files++)->revents != 0;
  for (auto& [peer, state] : peers_) {
    if (state.connector) state.readable |= (files++)->revents != 0;
    if (state.readable) next_time_ = 0;
  }
  if (arrivals_) next_time_ = 0;
}

bool ShmPeers::Sleep() {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](auto& p) { return !p.second.reads || p.second.channel->Sleep(); });
}

void ShmPeers::Awake() {
  for (auto& [peer, state] : peers_)
    if (state.reads) state.channel->Awake();
}

bool ShmPeers::Changed() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& p) { return p.second.reads && p.second.channel->Changed(); });
}

bool ShmPeers::HasLent() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& p) { return p.second.channel && p.second.channel->has_lent(); });
}

std::size_t ShmPeers::waiting_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [peer, state] : peers_)
    if (state.channel && !state.channel->gone()) bytes += state.channel->waiting_bytes();
  return bytes;
}

std::size_t ShmPeers::channels() const {
  return static_cast<std::size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const auto& p) { return p.second.channel.has_value(); }));
}

}  // namespace tarn::net
