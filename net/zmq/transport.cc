#include "net/zmq/transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/log.h"
#include "net/accepted_peers.h"
#include "net/backlog.h"
#include "net/local_endpoint.h"
#include "net/shm_handshake.h"
#include "net/shm_peers.h"
#include "net/zmq/address.h"
#include "net/zmq/clock.h"
#include "net/zmq/event_wait.h"
#include "net/zmq/intake.h"
#include "net/zmq/links.h"
#include "net/zmq/message_sender.h"
#include "net/zmq/polled_socket.h"
#include "net/zmq/receiver.h"
#include "net/zmq/router.h"
#include "net/zmq/socket_sender.h"
#include "net/zmq/wake_event.h"

namespace tarn::net {
namespace {

// How long Receive may return messages without polling files. Until the next poll it does not see wake-ups, nor
// messages that arrive at a socket that was found empty.
constexpr TimeUs kUnpolledUs = 200;

SocketOptions SocketOptionsOf(const ZmqTransportOptions& options) {
  return {
      .high_water_mark = options.high_water_mark, .linger_ms = options.linger_ms, .reconnect_ms = options.reconnect_ms};
}

}  // namespace

class ZmqTransport::Impl {
 public:
  Impl(ZmqContext* context, const ZmqTransportOptions& options)
      : context_(context),
        options_(options),
        shm_({.ring_bytes = options.shm_ring_bytes,
              .waiting_bytes_max = options.backlog_bytes_max,
              .wake_file = wake_.file(),
              .lends = options.lend_payloads},
             [this](Peer to, const ShmHandshake& message) {
               return sockets_.SendNow(to, Frames{EncodeShmHandshake(message)});
             }),
        router_({.socket = SocketOptionsOf(options),
                 .accepted_peers_max = options.accepted_peers_max,
                 .unfinished_bytes_max = options.unfinished_bytes_max}),
        sockets_(&router_, &links_, options.backlog_bytes_max),
        sender_(&links_, &shm_, &sockets_, options.backlog_bytes_max),
        intake_([this](Peer to, Frames answer) { SendAnswer(to, std::move(answer)); }),
        receiver_(&router_, &links_, &shm_, &intake_),
        wait_(&router_, &links_, &shm_, &sockets_.backlog(), &wake_) {
    SetLanes(options.lanes);
  }
  ~Impl() {
    const TimeUs end = NowUs() + TimeUs{options_.linger_ms} * 1000;
    while (shm_.waiting_bytes() != 0 && NowUs() < end) {
      wait_.Wait(0);  // notes which peers have ended; nothing is sent to them
      StepShm(NowUs());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Expected<std::string> Bind(const std::string& endpoint) {
    const Expected<std::string> address = ZmqAddress(endpoint, IsOpen(), &context_->folders());
    if (!address) return std::unexpected(address.error());
    if (IsTcp(endpoint) && context_->keys() == nullptr)
      LogWarning("insecure: {} accepts plain connections: anyone who can connect can read and change the job",
                 endpoint);
    // ZeroMQ would replace a socket that is in use.
    constexpr std::string_view kIpc = "ipc://";
    if (IsIpc(endpoint) && FindListener(address->substr(kIpc.size())) == Listener::kThere)
      return Fail(ErrorCode::kAlreadyExists, fmt::format("cannot bind {}: another process listens there", endpoint));
    Expected<std::string> bound = router_.Bind(context_, *address);
    if (!bound) return bound;
    if (options_.shm) shm_.Open();
    return IsIpc(endpoint) ? endpoint : bound;
  }

  Status Connect(Peer peer, const std::string& endpoint) {
    TARN_CHECK(!IsAccepted(peer), "an accepted peer connects to this node");
    const Expected<std::string> address = ZmqAddress(endpoint, IsOpen(), &context_->folders());
    if (!address) return std::unexpected(address.error());
    if (links_.IsConnectedTo(peer, endpoint)) return {};
    std::vector<PolledSocket> lanes;
    while (lanes.size() < (peer == kSchedulerPeer ? 1 : options_.lanes)) {
      Expected<PolledSocket> lane = PolledSocket::Open(context_, zmq::socket_type::dealer, SocketOptionsOf(options_));
      if (!lane) return std::unexpected(lane.error());
      TARN_RETURN_IF_ERROR(lane->socket.Connect(*address));
      lanes.push_back(std::move(*lane));
    }
    links_.Put(peer, endpoint, std::move(lanes));
    lost_messages_ += sockets_.Drop(peer) + shm_.Forget(peer);
    if (options_.shm && peer != kSchedulerPeer) shm_.Request(peer);
    return {};
  }

  void Send(Peer to, const Message& message) {
    sender_.Add(to, message);
    sender_.Flush();
  }

  void Send(std::span<const Outgoing> outgoing) {
    for (const Outgoing& o : outgoing) sender_.Add(o.to, o.message);
    sender_.Flush();
  }

  std::size_t Receive(std::vector<Received>* out, std::size_t max, std::int64_t timeout_us) {
    const TimeUs now = NowUs();
    const TimeUs deadline = timeout_us < 0 ? INT64_MAX : now + timeout_us;
    const std::size_t before = out->size();
    router_.CountFailures(now);
    for (TimeUs turn = now;; turn = NowUs()) {
      sockets_.Flush();
      shm_.GiveBack();
      StepShm(turn);
      receiver_.Drain(max, out);
      if (out->size() > before && turn - polled_ < kUnpolledUs) break;
      polled_ = turn;
      const bool at_once = timeout_us == 0 || out->size() > before || max == 0;
      // Files announce messages only for sockets that were found empty, and rejected messages also use the budget.
      const bool interrupted =
          !wait_.Wait(at_once || receiver_.MayHold() ? 0 : std::min(deadline, shm_.NextTime()) - turn);
      const bool woken = wake_.Take();
      StepShm(turn);
      receiver_.Drain(max - std::min(max, out->size() - before), out);
      if (const std::uint64_t ended = router_.CloseOversizedSenders(); ended != 0)
        intake_.CountEnded(ended, options_.unfinished_bytes_max);
      if (interrupted || woken || at_once || out->size() > before) break;
      if (deadline != INT64_MAX && NowUs() >= deadline) break;
    }
    return out->size() - before;
  }

  void Wake() { wake_.Wake(); }

  void SetBusyPoll(std::int64_t us) { wait_.SetBusyPoll(us); }

  void SetLanes(std::uint32_t lanes) {
    TARN_CHECK(lanes > 0, "a peer without a lane cannot be reached");
    options_.lanes = lanes;
  }

  TransportCounters counters() {
    router_.CountFailures(INT64_MAX);
    TransportCounters counters;
    sockets_.AddTo(&counters);
    sender_.AddTo(&counters);
    intake_.AddTo(&counters);
    counters.refused_handshakes = router_.failures();
    counters.dropped_unreachable += lost_messages_;
    counters.backlog_bytes = sockets_.backlog().bytes() + shm_.waiting_bytes();
    counters.shm_peers = shm_.channels();
    counters.accepted_peers = router_.peers();
    return counters;
  }

 private:
  // Whether endpoints that other users can reach are allowed: keys authenticate every connection, or `insecure` is set.
  bool IsOpen() const { return options_.insecure || context_->keys() != nullptr; }

  void StepShm(TimeUs now) { lost_messages_ += shm_.Step(now); }

  // Over a socket an answer is dropped if it cannot be sent at once, so that a peer that sends invalid bytes and does
  // not read causes no queue. Over shared memory it waits like other messages, up to the bound of the peer.
  void SendAnswer(Peer to, Frames answer) {
    if (shm_.Sends(to))
      shm_.Send(to, std::move(answer));
    else
      sockets_.SendNow(to, answer);
  }

  ZmqContext* context_;
  ZmqTransportOptions options_;
  WakeEvent wake_;
  ShmPeers shm_;
  Router router_;
  ZmqLinks links_;
  SocketSender sockets_;
  MessageSender sender_;
  Intake intake_;
  Receiver receiver_;
  EventWait wait_;
  TimeUs polled_ = 0;
  std::uint64_t lost_messages_ = 0;  // messages that waited for a closed link or shared-memory channel
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
