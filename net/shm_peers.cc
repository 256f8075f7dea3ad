#include "net/shm_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/limits.h"
#include "core/log.h"

namespace tarn::net {
namespace {

constexpr TimeUs kAskPeriodUs = 1'000'000, kAskPeriodUsMax = 64'000'000;
constexpr TimeUs kSayPeriodUs = 10'000;  // until ZeroMQ takes a word
// How long a lane waits for the word that nothing is on its way by ZeroMQ any more.
constexpr TimeUs kThroughUs = 10'000'000;
constexpr TimeUs kListenPeriodUs = 1'000'000;  // without a file left

}  // namespace

void ShmPeers::Open() {
  if (door_) return;
  auto door = ShmDoor::Open(options_.ring_bytes);
  if (door)
    door_.emplace(std::move(*door));
  else
    LogInfo("{}; going on without", door.error().message);
}

void ShmPeers::Ask(Peer peer) {
  if (boot_id_.empty()) return;
  peers_.erase(peer);
  peers_[peer].asks = true;
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

void ShmPeers::Meet(Peer peer, const Sender& sender) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || found->second.sender) return;
  found->second.sender = sender;
  if (found->second.lane) SayLane(peer, found->second);
  LookForStrangers();
}

void ShmPeers::LookForStrangers() {
  strangers_ = std::any_of(peers_.begin(), peers_.end(),
                           [](const auto& p) { return p.second.lane && IsStranger(p.first, p.second); });
}

bool ShmPeers::IsStranger(Peer peer, const State& state) { return peer.value >= kFirstAcceptedPeer && !state.sender; }

void ShmPeers::SayLane(Peer peer, const State& state) {
  LogInfo("shared memory with {}, two rings of {} KiB", NameOf(peer, state), state.lane->ring_bytes() >> 10);
}

// The lane, with what waits in it. Returns how many messages that were.
std::size_t ShmPeers::End(State* state) {
  const std::size_t lost = state->lane ? state->lane->waiting_messages() : 0;
  state->lane.reset();
  state->guest.reset();
  state->look = state->must_say = state->reads = state->writes = state->heard = false;
  return lost;
}

// Only who has connected asks.
void ShmPeers::AskLater(Peer peer, State* state, TimeUs now) {
  if (peer.value >= kFirstAcceptedPeer) return;
  state->asks = true;
  state->pause = std::clamp(2 * state->pause, kAskPeriodUs, kAskPeriodUsMax);
  state->next_ask = now + state->pause;
  Schedule(state->next_ask);
}

void ShmPeers::OnWord(Peer from, const ShmWord& word, TimeUs now) {
  if (word.kind == ShmWord::Kind::kAsk) return OnAsk(from, word.socket);
  const auto found = peers_.find(from);
  if (found == peers_.end()) return;
  State& state = found->second;
  if (word.kind == ShmWord::Kind::kThrough) {
    state.heard = state.lane.has_value();
    next_time_ = 0;
  } else if (state.asks) {
    state.asks = false;
    if (word.kind == ShmWord::Kind::kOffer) OnOffer(from, word);
    if (!state.guest) AskLater(from, &state, now);
  }
}

void ShmPeers::OnAsk(Peer from, const std::string& boot_id) {
  ShmWord answer;
  if (door_ && !boot_id.empty() && boot_id == boot_id_ && lanes() < limits::kShmLanesMax)
    answer = {.kind = ShmWord::Kind::kOffer, .socket = door_->name(), .ticket = door_->TicketFor(from)};
  say_(from, answer);  // who does not get it asks again
}

void ShmPeers::OnOffer(Peer from, const ShmWord& word) {
  auto guest = ShmGuest::Knock(word.socket, word.ticket);
  if (guest)
    peers_[from].guest.emplace(std::move(*guest));
  else
    LogInfo("shared memory: the socket of {} {}; going on over the network", NameOf(from, peers_[from]),
            guest.error().message);
}

void ShmPeers::TakeLane(Peer peer, State* state, ShmLane lane, TimeUs now) {
  End(state);
  state->asks = false;
  state->lane.emplace(std::move(lane));
  if (options_.lends) state->lane->SetLending();
  if (IsStranger(peer, *state))
    strangers_ = true;
  else
    SayLane(peer, *state);
  state->through_by = now + kThroughUs;
  Schedule(state->through_by);
}

void ShmPeers::TakeGuest(Peer peer, State* state, TimeUs now) {
  auto lane = state->guest->Take();
  if (!lane) return;
  if (*lane) {
    TakeLane(peer, state, std::move(**lane), now);
    state->must_say = true;
    return;
  }
  LogInfo("shared memory: {} {}; going on over the network", NameOf(peer, *state), lane->error().message);
  state->guest.reset();
  AskLater(peer, state, now);
}

std::size_t ShmPeers::TendAll(TimeUs now) {
  next_time_ = INT64_MAX;
  waiting_ = false;
  std::size_t lost = 0;
  if (std::exchange(door_waits_, false)) {
    // More may have been asked in than there is room for.
    door_->Take(limits::kShmLanesMax - std::min(limits::kShmLanesMax, lanes()), [&](Peer peer, ShmLane lane) {
      if (peers_.contains(peer)) lost += End(&peers_[peer]);
      TakeLane(peer, &peers_[peer], std::move(lane), now);
    });
  }
  if (door_ && !door_->listens()) {
    if (now >= listen_at_) {
      door_->Listen();
      listen_at_ = now + kListenPeriodUs;
    }
    Schedule(listen_at_);
  }
  for (auto& [peer, state] : peers_) {
    TendOne(peer, &state, now);
    const bool over = state.lane && (state.lane->ended() || (!state.heard && now >= state.through_by));
    if (!over) continue;
    LogInfo("shared memory with {} has ended", NameOf(peer, state));
    lost += End(&state);
    AskLater(peer, &state, now);
  }
  std::erase_if(peers_, [](const auto& p) { return !p.second.asks && !p.second.guest && !p.second.lane; });
  LookForStrangers();
  return lost;
}

void ShmPeers::TendOne(Peer peer, State* state, TimeUs now) {
  if (state->asks) {
    if (now >= state->next_ask)
      state->next_ask = now + (say_(peer, {.kind = ShmWord::Kind::kAsk, .socket = boot_id_, .ticket = {}})
                                   ? std::max(state->pause, kAskPeriodUs)
                                   : kSayPeriodUs);
    return Schedule(state->next_ask);
  }
  const bool look = std::exchange(state->look, false);
  if (state->guest && look) TakeGuest(peer, state, now);
  if (!state->lane) return;
  if (look) state->lane->TakeWakes();
  if (!state->reads && (state->heard || state->lane->gone())) {
    state->reads = true;
    state->pause = 0;
    state->must_say |= !state->writes && !state->lane->gone();
  }
  if (!state->heard) Schedule(state->through_by);
  if (state->must_say) {
    state->writes = say_(peer, {.kind = ShmWord::Kind::kThrough, .socket = {}, .ticket = {}});
    state->must_say = !state->writes;
    if (state->must_say) Schedule(now + kSayPeriodUs);
  }
  if (state->writes) state->lane->Flush();
  waiting_ |= state->lane->waiting_bytes() != 0;
}

void ShmPeers::AddFiles(std::vector<pollfd>* files) const {
  if (door_) door_->AddFiles(files);
  for (const auto& [peer, state] : peers_) {
    if (state.guest) files->push_back({state.guest->file(), POLLIN, 0});
    if (state.lane) files->push_back({state.lane->file(), POLLIN, 0});
  }
}

void ShmPeers::TakeFiles(const pollfd* files) {
  if (door_)
    for (std::size_t left = door_->files(); left > 0; --left) door_waits_ |= (files++)->revents != 0;
  for (auto& [peer, state] : peers_) {
    if (state.guest) state.look |= (files++)->revents != 0;
    if (state.lane) state.look |= (files++)->revents != 0;
    if (state.look) next_time_ = 0;
  }
  if (door_waits_) next_time_ = 0;
}

bool ShmPeers::Sleep() {
  return std::all_of(peers_.begin(), peers_.end(), [](auto& p) { return !p.second.reads || p.second.lane->Sleep(); });
}

void ShmPeers::Awake() {
  for (auto& [peer, state] : peers_)
    if (state.reads) state.lane->Awake();
}

bool ShmPeers::Changed() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& p) { return p.second.reads && p.second.lane->Changed(); });
}

bool ShmPeers::HasLent() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& p) { return p.second.lane && p.second.lane->has_lent(); });
}

std::size_t ShmPeers::waiting_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [peer, state] : peers_)
    if (state.lane && !state.lane->gone()) bytes += state.lane->waiting_bytes();
  return bytes;
}

std::size_t ShmPeers::lanes() const {
  return static_cast<std::size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const auto& p) { return p.second.lane.has_value(); }));
}

}  // namespace tarn::net
