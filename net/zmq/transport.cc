#include "net/zmq/transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/log.h"
#include "net/accepted_peers.h"
#include "net/backlog.h"
#include "net/bundles.h"
#include "net/frame.h"
#include "net/shm_peers.h"
#include "net/zmq/connections.h"
#include "net/zmq/lane.h"
#include "net/zmq/links.h"
#include "net/zmq/socket.h"

namespace tarn::net {
namespace {

// How long to wait before trying a ROUTER's full peers again: it cannot be polled for room.
constexpr int kRetryMs = 1;
// Messages taken from one socket before the next has its turn.
constexpr std::size_t kTurn = 32;
// How often connections are looked at that send a message without end.
constexpr TimeUs kEndlessPeriodUs = 100'000;
// For how long Receive may find messages without looking at files: so long a peer over sockets waits behind those of
// memory, and a wake-up behind both.
constexpr TimeUs kUnpolledUs = 200;
constexpr TimeUs kCountPeriodUs = 100'000;
// Of the messages taken at a time one in so many is left to sockets, however many come through memory.
constexpr std::size_t kShareOfSockets = 4;
// While it looks for messages instead of sleeping: looks at memory for each at files.
constexpr int kLooksAtMemory = 64;

TimeUs NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kIpc = "ipc://";

// ZeroMQ takes "99999" for 34463.
bool IsAddress(std::string_view endpoint) {
  if (endpoint.starts_with("inproc://")) return true;
  if (!endpoint.starts_with(kTcp)) return false;
  if (endpoint.ends_with(":*")) return true;
  const std::string_view digits = endpoint.substr(endpoint.rfind(':') + 1);
  std::uint32_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && port <= 65535;
}

bool IsAccepted(Peer peer) { return peer.value >= kFirstAcceptedPeer; }

// The frames of a message of ZeroMQ behind its identity, if it has one.
class OwnedParts final : public FrameOwner {
 public:
  OwnedParts(Parts* parts, std::size_t skip) : parts_(parts), skip_(skip) {}
  Buffer Take(std::size_t frame) override { return parts_->Take(skip_ + frame); }

 private:
  Parts* parts_;
  std::size_t skip_;
};

// Leaves the core's other thread more, and the loop it stands in less to take back.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

class ZmqTransport::Impl {
 public:
  Impl(ZmqContext* context, const ZmqTransportOptions& options)
      : context_(*context),
        options_(options),
        accepted_(options.accepted_peers_max),
        backlog_(options.backlog_bytes_max),
        shm_({.ring_bytes = options.shm_ring_bytes,
              .waiting_bytes_max = options.backlog_bytes_max,
              .lends = options.lend_payloads},
             [this](Peer to, const ShmWord& word) {
               return !backlog_.Has(to) && TrySend(to, Frames{EncodeShmWord(word)});
             }),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    TARN_CHECK(wake_ >= 0, "no file descriptor left");
    SetLanes(options.lanes);
  }
  ~Impl() {
    const TimeUs end = NowUs() + TimeUs{options_.linger_ms} * 1000;
    while (shm_.waiting_bytes() != 0 && NowUs() < end) {
      TendShm(NowUs());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    close(wake_);
  }

  Expected<std::string> Bind(const std::string& endpoint) {
    const Expected<std::string> address = AddressOf(endpoint);
    if (!address) return std::unexpected(address.error());
    if (!router_) TARN_RETURN_IF_ERROR(OpenRouter());
    if (endpoint.starts_with(kTcp) && context_.keys() == nullptr)
      LogWarning("insecure: {} takes plain connections: whoever reaches it can read and change the job", endpoint);
    TARN_RETURN_IF_ERROR(router_->socket.Bind(*address));
    if (options_.shm) shm_.Open();
    return endpoint.starts_with(kIpc) ? endpoint : router_->socket.LastEndpoint();
  }

  Status Connect(Peer peer, const std::string& endpoint) {
    TARN_CHECK(!IsAccepted(peer), "accepted peers connect to us");
    const Expected<std::string> address = AddressOf(endpoint);
    if (!address) return std::unexpected(address.error());
    if (links_.Leads(peer, endpoint)) return {};
    std::vector<Lane> lanes;
    while (lanes.size() < (peer == kSchedulerPeer ? 1 : options_.lanes)) {
      Expected<Socket> socket = OpenSocket(zmq::socket_type::dealer);
      if (!socket) return std::unexpected(socket.error());
      TARN_RETURN_IF_ERROR(socket->Connect(*address));
      lanes.emplace_back(std::move(*socket));
    }
    links_.Put(peer, endpoint, std::move(lanes));
    counters_.dropped_unreachable += backlog_.Drop(peer) + shm_.Forget(peer);
    if (options_.shm && peer != kSchedulerPeer) shm_.Ask(peer);
    return {};
  }

  void Send(Peer to, const Message& message) {
    Add(to, message);
    bundles_.Flush(sender_);
  }

  void Send(std::span<const Outgoing> outgoing) {
    for (const Outgoing& o : outgoing) Add(o.to, o.message);
    bundles_.Flush(sender_);
  }

  std::size_t Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) {
    const TimeUs now = NowUs();
    const TimeUs deadline = timeout_us < 0 ? INT64_MAX : now + timeout_us;
    const std::size_t before = out->size();
    CountHandshakes(now);
    for (TimeUs turn = now;; turn = NowUs()) {
      FlushBacklog();
      shm_.GiveBack();
      TendShm(turn);
      Drain(out, max);
      if (out->size() > before && turn - polled_ < kUnpolledUs) break;
      polled_ = turn;
      const bool at_once = timeout_us == 0 || out->size() > before || max == 0;
      // Files speak of sockets that were found empty, and refused messages too use up the budget.
      const bool interrupted =
          !Wait(at_once || AnyMayHold() || shm_may_hold_ ? 0 : std::min(deadline, shm_.NextTime()) - turn);
      const bool woken = TakeWake();
      TendShm(turn);
      Drain(out, max - std::min(max, out->size() - before));
      EndEndless();
      if (interrupted || woken || at_once || out->size() > before) break;
      if (deadline != INT64_MAX && NowUs() >= deadline) break;
    }
    return out->size() - before;
  }

  // Whoever polls sees the word or is told by the file: each side writes its own, then reads the other's.
  void Wake() {
    wake_asked_.store(true);
    if (!asleep_.load()) return;
    const std::uint64_t one = 1;
    // Fails only if the counter is full: then the wake-up is pending anyway.
    [[maybe_unused]] const auto written = write(wake_, &one, sizeof(one));
  }

  void SetBusyPoll(std::int64_t us) { busy_poll_us_ = us; }

  void SetLanes(std::uint32_t lanes) {
    TARN_CHECK(lanes > 0, "a peer without a lane cannot be reached");
    options_.lanes = lanes;
  }

  TransportCounters counters() {
    CountHandshakes(INT64_MAX);
    TransportCounters counters = counters_;
    counters.backlog_bytes = backlog_.bytes() + shm_.waiting_bytes();
    counters.shm_peers = shm_.lanes();
    counters.accepted_peers = accepted_.size();
    return counters;
  }

 private:
  SocketOptions SocketSettings() const {
    return {.high_water_mark = options_.high_water_mark,
            .linger_ms = options_.linger_ms,
            .heartbeat_ms = options_.heartbeat_ms,
            .reconnect_ms = options_.reconnect_ms};
  }

  // For Bundles: frames to be shared, or one to be copied.
  struct Sender {
    Impl* impl;
    template <typename What>
    void operator()(const LaneId& to, What what) const {
      impl->SendOrKeep(to, std::move(what));
    }
  };

  static Frames Own(Frames frames) { return frames; }
  static Frames Own(const FrameView& frame) { return {Buffer::Copy(frame.data, frame.size)}; }

  void Add(Peer to, const Message& message) {
    const Status begun = encoder_.Begin(message);
    if (begun) return bundles_.Add(LaneFor(to, message), encoder_, sender_);
    ++counters_.dropped_unencodable;
    LogWarning(unencodable_limiter_, "dropped a message of our own: {}", ToString(begun.error()));
  }

  LaneId LaneFor(Peer to, const Message& message) {
    const bool may_choose = links_.has_several() && std::holds_alternative<Pull>(message.body) && !shm_.Sends(to);
    return may_choose ? links_.NextForPull(to, backlog_) : to;
  }

  template <typename What>
  void SendOrKeep(const LaneId& to, What what) {
    const std::size_t messages = MessagesIn(what);
    if (shm_.Sends(to.peer)) {
      const std::size_t bytes = BytesOf(what);
      if (shm_.Send(to.peer, std::move(what))) {
        counters_.sent_messages += messages;
        counters_.sent_bytes += bytes;
        return;
      }
    } else if ((!backlog_.Has(to) && TrySend(to, what)) || backlog_.Push(to, Own(std::move(what)))) {
      return;
    }
    counters_.dropped_backlog += messages;
    LogWarning(backlog_limiter_, "dropped messages to peer {}: more than {} MB would wait for it", to.peer.value,
               options_.backlog_bytes_max >> 20);
  }

  // What ZeroMQ is given for `endpoint`, if those who can reach it have to prove that they may, or `insecure` lets
  // them.
  Expected<std::string> AddressOf(const std::string& endpoint) {
    const bool open = options_.insecure || context_.keys() != nullptr;
    if (endpoint.starts_with(kIpc)) return context_.folders().Reach(endpoint, !open);
    if (!IsAddress(endpoint))
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected tcp://HOST:PORT with a port up to 65535", endpoint));
    if (open || !endpoint.starts_with(kTcp)) return endpoint;
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: every user of its host can connect to a TCP address: expected keys (--keys FILE, which "
                    "tarn-keys makes), or ipc:// in a folder of mode 0700; --insecure goes without",
                    endpoint));
  }

  // A router or a dealer, with the fleet's keys if there are any.
  Expected<Socket> OpenSocket(zmq::socket_type type) {
    Expected<Socket> socket = Socket::Open(context_.raw(), type, SocketSettings());
    if (socket && context_.keys() != nullptr)
      TARN_RETURN_IF_ERROR(ApplyCurveKeys(*context_.keys(), type == zmq::socket_type::router, &socket->raw()));
    return socket;
  }

  Status OpenRouter() {
    Expected<Socket> socket = OpenSocket(zmq::socket_type::router);
    if (!socket) return std::unexpected(socket.error());
    router_.emplace(std::move(*socket));
    return connections_.Watch(context_.raw(), &router_->socket.raw());
  }

  // Whether nothing remains to be done for the message: it is sent, or its peer is gone.
  template <typename What>
  bool TrySend(const LaneId& to, const What& frames) {
    Lane* lane = links_.Find(to);
    const std::string_view identity = IsAccepted(to.peer) ? accepted_.IdentityOf(to.peer) : std::string_view();
    SendResult result = SendResult::kUnreachable;
    if (lane != nullptr) result = lane->Send({}, frames);
    if (!identity.empty()) result = router_->Send(identity, frames);
    if (result == SendResult::kFull) return false;
    if (result == SendResult::kSent) {
      counters_.sent_messages += MessagesIn(frames);
      counters_.sent_bytes += BytesOf(frames);
      return true;
    }
    counters_.dropped_unreachable += MessagesIn(frames);
    if (IsAccepted(to.peer)) accepted_.Forget(to.peer);
    LogWarning(unreachable_limiter_, "dropped a message: peer {} is gone", to.peer.value);
    return true;
  }

  bool AnyMayHold() const { return (router_ && router_->may_hold) || links_.AnyMayHold(); }

  void FlushBacklog() {
    if (backlog_.empty()) return;
    backlog_.Flush([this](const LaneId& to, const Frames& frames) { return TrySend(to, frames); });
  }

  void TendShm(TimeUs now) { counters_.dropped_unreachable += shm_.Tend(now); }

  // Waits for something to happen, at most so long. False after a signal.
  bool Wait(TimeUs wait_us) {
    bool fine = true;
    if (wait_us > 0 && busy_poll_us_ > 0 && Look(std::min(wait_us, busy_poll_us_), &fine)) return fine;
    if (wait_us <= 0) return Poll(0);
    asleep_.store(true);
    const bool sleep = shm_.Sleep() && !wake_asked_.load();
    fine = Poll(sleep ? wait_us : 0);
    shm_.Awake();
    asleep_.store(false);
    return fine;
  }

  // Looks until something has happened, at most so long. `fine`: it was no signal.
  bool Look(TimeUs us, bool* fine) {
    for (const TimeUs end = NowUs() + us; NowUs() < end;) {
      for (int i = 0; i < kLooksAtMemory; ++i) {
        if (shm_.Changed() || wake_asked_.load(std::memory_order_relaxed)) return true;
        Pause();
      }
      if (*fine = Poll(0); !*fine) return true;
      if (AnyMayHold() || shm_.NextTime() == 0) return true;
    }
    return false;
  }

  // Waits, and notes which lanes may hold messages. False after a signal.
  bool Poll(TimeUs wait_us) {
    constexpr TimeUs kLongestUs = TimeUs{3600} * 1'000'000;
    const int wait_ms = static_cast<int>((std::clamp<TimeUs>(wait_us, 0, kLongestUs) + 999) / 1000);
    return backlog_.empty() ? PollFiles(wait_ms) : PollSockets(wait_ms);
  }

  // One system call, whatever the number of sockets. To wait in it, all of them must have been found empty.
  bool PollFiles(int wait_ms) {
    files_.clear();
    files_.push_back({wake_, POLLIN, 0});
    if (router_) files_.push_back({router_->file, POLLIN, 0});
    links_.ForEach([&](const LaneId&, const Lane& lane) { files_.push_back({lane.file, POLLIN, 0}); });
    const std::size_t shm = files_.size();
    shm_.AddFiles(&files_);
    if (poll(files_.data(), files_.size(), wait_ms) < 0) return false;
    shm_.TakeFiles(files_.data() + shm);
    wake_waits_ = files_[0].revents != 0;
    std::size_t file = 1;
    if (router_) router_->may_hold |= files_[file++].revents != 0;
    links_.ForEach([&](const LaneId&, Lane& lane) { lane.may_hold |= files_[file++].revents != 0; });
    return true;
  }

  // The same, and for room in the sockets that have a backlog.
  bool PollSockets(int wait_ms) {
    items_.clear();
    items_.push_back({nullptr, wake_, ZMQ_POLLIN, 0});
    if (router_) items_.push_back({router_->socket.raw().handle(), 0, ZMQ_POLLIN, 0});
    bool accepted_waits = false;
    backlog_.ForEachLane([&](const LaneId& id) { accepted_waits |= IsAccepted(id.peer); });
    links_.ForEach([&](const LaneId& id, Lane& lane) {
      const int events = backlog_.Has(id) ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN;
      items_.push_back({lane.socket.raw().handle(), 0, static_cast<short>(events), 0});
    });
    if (accepted_waits) wait_ms = std::min(wait_ms, kRetryMs);
    const std::size_t shm = items_.size();
    files_.clear();
    shm_.AddFiles(&files_);
    for (const pollfd& file : files_) items_.push_back({nullptr, file.fd, ZMQ_POLLIN, 0});
    try {
      zmq::poll(items_, std::chrono::milliseconds(wait_ms));
    } catch (const zmq::error_t&) {
      return false;
    }
    for (std::size_t i = 0; i < files_.size(); ++i) files_[i].revents = items_[shm + i].revents;
    shm_.TakeFiles(files_.data());
    wake_waits_ = items_[0].revents != 0;
    std::size_t item = 1;
    if (router_) router_->may_hold |= items_[item++].revents != 0;
    links_.ForEach([&](const LaneId&, Lane& lane) { lane.may_hold |= items_[item++].revents != 0; });
    return true;
  }

  bool TakeWake() {
    std::uint64_t count = 0;
    if (std::exchange(wake_waits_, false)) [[maybe_unused]]
      const auto taken = read(wake_, &count, sizeof(count));
    return wake_asked_.load(std::memory_order_relaxed) && wake_asked_.exchange(false);
  }

  // ZeroMQ's own thread waits when too many of these are waiting.
  void CountHandshakes(TimeUs now) {
    if (now < next_count_) return;
    next_count_ = NowUs() + kCountPeriodUs;
    counters_.refused_handshakes += connections_.Take();
  }

  // Takes up to `budget` messages, good or bad, of the lanes that may hold some, in turns.
  void Drain(std::vector<Received>* out, std::size_t budget) {
    std::size_t of_memory = budget - budget / kShareOfSockets;
    budget -= of_memory;
    shm_may_hold_ = shm_.Drain(&of_memory, [&](Peer from, ShmFrames* frames) {
      if (IsAccepted(from)) accepted_.Touch(from);
      AcceptAll(from, frames->views(), frames, out);
      if (shm_.strangers() && !out->empty() && out->back().from == from) shm_.Meet(from, out->back().message.sender);
    });
    budget += of_memory;
    ready_.clear();
    if (router_ && router_->may_hold) ready_.push_back({&*router_, Peer()});
    links_.ForEach([&](const LaneId& id, Lane& lane) {
      if (lane.may_hold) ready_.push_back({&lane, id.peer});
    });
    if (ready_.empty()) return;
    std::rotate(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(turn_++ % ready_.size()), ready_.end());
    while (!ready_.empty() && budget > 0)
      std::erase_if(ready_, [&](const Ready& ready) { return !TakeTurn(ready, out, &budget); });
  }

  void EndEndless() {
    if (!router_ || router_->may_hold || NowUs() < next_endless_) return;
    next_endless_ = NowUs() + kEndlessPeriodUs;
    const std::uint64_t ended = connections_.EndEndless(options_.unfinished_bytes_max);
    if (ended == 0) return;
    counters_.refused_too_large += ended;
    LogWarning(too_large_limiter_, "ended {} connections that had sent more than {} MB of one message", ended,
               options_.unfinished_bytes_max >> 20);
  }

  struct Ready {
    Lane* lane;
    Peer peer;  // whom it connects to; none for the ROUTER
  };

  // Whether the lane may have more.
  bool TakeTurn(const Ready& ready, std::vector<Received>* out, std::size_t* budget) {
    for (std::size_t i = 0; i < kTurn && *budget > 0; ++i, --*budget) {
      if (!ready.lane->Receive(&parts_)) return false;
      Accept(ready, out);
    }
    return true;
  }

  void Accept(const Ready& ready, std::vector<Received>* out) {
    const bool by_router = router_ && ready.lane == &*router_;
    const std::size_t skip = by_router ? 1 : 0;
    Peer from = ready.peer;
    if (by_router) {
      const FrameView identity = parts_[0];
      connections_.OnMessage(parts_.connection());
      from = accepted_.Intern({reinterpret_cast<const char*>(identity.data), identity.size});
    }
    std::array<FrameView, Parts::kMax> frames;
    for (std::size_t i = skip; i < parts_.count(); ++i) frames[i - skip] = parts_[i];
    const std::span<const FrameView> all(frames.data(), parts_.count() - skip);
    OwnedParts owner(&parts_, skip);
    if (parts_.too_large())
      RefuseTooLarge(from, all, out);
    else if (!AcceptWord(from, all))
      AcceptAll(from, all, &owner, out);
    parts_.Clear();
  }

  // Whether the message is of those by which memory comes to be shared.
  bool AcceptWord(Peer from, std::span<const FrameView> frames) {
    if (frames.size() != 1) return false;
    const auto word = DecodeShmWord(frames[0]);
    if (!word) return false;
    if (*word)
      shm_.OnWord(from, **word, NowUs());
    else
      Refuse(from, word->error(), frames);
    return true;
  }

  void AcceptAll(Peer from, std::span<const FrameView> all, FrameOwner* owner, std::vector<Received>* out) {
    if (all.size() != 1 || !IsBundle(all[0])) return AcceptOne(from, all, owner, out);
    const auto bundle = SplitBundle(all[0]);
    if (!bundle) return Refuse(from, bundle.error(), all);
    counters_.received_bytes += all[0].size;
    for (const FrameView& one : bundle->views()) {
      counters_.received_bytes -= one.size;
      AcceptOne(from, {&one, 1}, nullptr, out);
    }
  }

  void AcceptOne(Peer from, std::span<const FrameView> frames, FrameOwner* owner, std::vector<Received>* out) {
    Expected<Message> message = Decode(frames, owner);
    if (message) {
      ++counters_.received_messages;
      for (const FrameView& frame : frames) counters_.received_bytes += frame.size;
      return out->push_back({from, std::move(*message)});
    }
    Refuse(from, message.error(), frames);
    if (message.error().code == ErrorCode::kWrongJob && !IsAccepted(from)) out->push_back({from, Farewell(frames[0])});
  }

  // `frames` are those kept. Of another version only that is told.
  void RefuseTooLarge(Peer from, std::span<const FrameView> frames, std::vector<Received>* out) {
    const auto version = frames.empty() ? std::nullopt : VersionOf(frames[0]);
    if (version.value_or(limits::kProtocolVersion) != limits::kProtocolVersion)
      return AcceptOne(from, frames, nullptr, out);
    Refuse(from,
           {ErrorCode::kTooLarge,
            fmt::format("message: more than {} frames or {} bytes", limits::kFramesMax, limits::kMessageBytesMax)},
           frames);
  }

  // What a node of ours is told for a peer of another version, whose own words it cannot read.
  static Message Farewell(const FrameView& first) {
    Message message;
    message.sender.role = Role::kScheduler;
    message.body = Shutdown{ErrorCode::kWrongJob, fmt::format("this node speaks protocol {}, the fleet {}",
                                                              limits::kProtocolVersion, VersionOf(first).value_or(0))};
    return message;
  }

  void Refuse(Peer from, const Error& error, std::span<const FrameView> frames) {
    LogLimiter* limiter = &malformed_limiter_;
    if (error.code == ErrorCode::kTooLarge) {
      ++counters_.refused_too_large;
      limiter = &too_large_limiter_;
    } else if (error.code == ErrorCode::kWrongJob) {
      ++counters_.refused_version;
      limiter = &version_limiter_;
    } else {
      ++counters_.refused_malformed;
    }
    std::size_t bytes = 0;
    for (const FrameView& frame : frames) bytes += frame.size;
    LogWarning(*limiter, "refused {} bytes from peer {}: {}", bytes, from.value, ToString(error));
    // Nobody answers an answer: what comes over a link is one, or is from our own scheduler. Whoever speaks another
    // version learns ours from the answer's prefix.
    if (!IsAccepted(from)) return;
    Message reply;
    reply.body = ErrorReply{.code = error.code == ErrorCode::kWrongJob ? ErrorCode::kWrongJob : ErrorCode::kMalformed,
                            .message = error.message};
    Expected<Frames> answer = Encode(reply);
    // Whoever sends garbage and reads no answers gets none; nothing is kept for it.
    if (answer && shm_.Sends(from)) return void(shm_.Send(from, std::move(*answer)));
    if (answer && !backlog_.Has(from)) TrySend(from, *answer);
  }

  ZmqContext& context_;
  ZmqTransportOptions options_;
  AcceptedPeers accepted_;
  Backlog backlog_;
  ShmPeers shm_;
  int wake_;
  bool shm_may_hold_ = false;  // more than the last Drain took or could take
  std::atomic<bool> wake_asked_{false}, asleep_{false};
  TimeUs busy_poll_us_ = 0;
  std::optional<Lane> router_;
  ConnectionWatch connections_;  // behind the socket that it watches
  TimeUs next_endless_ = 0;
  ZmqLinks links_;
  std::vector<pollfd> files_;
  std::vector<zmq::pollitem_t> items_;
  std::vector<Ready> ready_;
  std::size_t turn_ = 0;
  TimeUs polled_ = 0;
  bool wake_waits_ = false;
  TimeUs next_count_ = 0;
  Parts parts_;
  Encoder encoder_;
  Bundles bundles_;
  Sender sender_{this};
  TransportCounters counters_;
  LogLimiter malformed_limiter_, too_large_limiter_, version_limiter_;
  LogLimiter unencodable_limiter_, backlog_limiter_, unreachable_limiter_;
};

ZmqTransport::ZmqTransport(ZmqContext* context, const ZmqTransportOptions& options)
    : impl_(std::make_unique<Impl>(context, options)) {}
ZmqTransport::~ZmqTransport() = default;

Expected<std::string> ZmqTransport::Bind(const std::string& endpoint) { return impl_->Bind(endpoint); }
Status ZmqTransport::Connect(Peer peer, const std::string& endpoint) { return impl_->Connect(peer, endpoint); }
void ZmqTransport::Send(Peer to, const Message& message) { impl_->Send(to, message); }
void ZmqTransport::Send(std::span<const Outgoing> outgoing) { impl_->Send(outgoing); }
std::size_t ZmqTransport::Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) {
  return impl_->Receive(out, max, timeout_us);
}
void ZmqTransport::Wake() { impl_->Wake(); }
void ZmqTransport::SetBusyPoll(std::int64_t us) { impl_->SetBusyPoll(us); }
void ZmqTransport::SetLanes(std::uint32_t lanes) { impl_->SetLanes(lanes); }
TransportCounters ZmqTransport::counters() const { return impl_->counters(); }

}  // namespace tarn::net
