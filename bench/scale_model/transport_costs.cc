#include "bench/scale_model/transport_costs.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "bench/data_plane/child.h"
#include "bench/data_plane/measure.h"
#include "net/zmq/transport.h"

namespace tarn::scale {
namespace {

Buffer Zeros(std::size_t floats) {
  Buffer values = Buffer::Allocate(floats * sizeof(float));
  std::memset(values.data(), 0, values.size());
  return values;
}

constexpr double kMessageBytes = 216;  // as MessageCosts counts a message of one section
constexpr std::size_t kEndpointBytes = 256;
constexpr std::size_t kBundled = 8;  // messages of a frame that has several
// The request id shows the echo process whether a message shares its frame.
constexpr RequestId kInBundle{2}, kAlone{1};
// Both ends are on one host here, but on different hosts in the predicted fleets.
constexpr net::ZmqTransportOptions kSockets = {.insecure = true, .shm = false};

double CpuNs(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

// Answers a pull of n keys with n one-float rows, and a push with an acknowledgement. Replies share frames as their
// requests did. Never returns.
void Echo(int to_parent) {
  net::ZmqContext context;
  net::ZmqTransport transport(&context, kSockets);
  const auto endpoint = transport.Bind("tcp://127.0.0.1:*");
  bench::Require(endpoint.has_value(), "the echo process cannot listen");
  std::string text = *endpoint;
  text.resize(kEndpointBytes);
  bench::Require(write(to_parent, text.data(), text.size()) == ssize_t(text.size()),
                 "the echo process cannot send its endpoint");
  std::vector<net::Received> received;
  Outbox out;
  while (true) {
    received.clear();
    transport.Receive(&received, 256, -1);
    for (net::Received& r : received) {
      Message answer;
      RequestId request;
      if (const auto* pull = std::get_if<Pull>(&r.message.body)) {
        request = pull->request;
        const PullPart& asked = pull->tables.front();
        ReplyPart part{asked.table, ValueCodec::kFp32, asked.keys.count, {}, Zeros(asked.keys.count)};
        answer.body = PullReply{request, {}, {std::move(part)}};
      } else if (const auto* push = std::get_if<Push>(&r.message.body)) {
        request = push->request;
        PushAck ack{request, {}};
        for (const Section& section : push->tables.front().keys.sections)
          ack.sections.push_back({section.partition, section.sequence, ErrorCode::kOk, {}});
        answer.body = ack;
      }
      out.push_back({r.from, std::move(answer)});
      if (request == kInBundle && out.size() < kBundled) continue;
      transport.Send(out);
      out.clear();
    }
  }
}

// The client's end of the connection to the echo process.
class EchoClient {
 public:
  explicit EchoClient(const std::string& endpoint) : transport_(&context_, kSockets) {
    bench::Require(transport_.Connect(ShardPeer(ShardId(0)), endpoint).has_value(),
                   "cannot connect to the echo process");
  }

  // Sends `frames` frames, each with one message or, if `bundled`, with kBundled, and receives their answers. `values`:
  // number of values of each push, or of each pull's answer. `counts`: whether the times are recorded.
  void Round(int frames, bool bundled, std::uint32_t values, bool push, bool counts) {
    const RequestId request = bundled ? kInBundle : kAlone;
    Message message;
    KeyList keys{KeyCodec::kRange, 0, std::max(1u, values), {{PartitionId(0), std::max(1u, values), Sequence(1)}}};
    if (push) {
      message.body = Push{request, {}, {{.table = TableId(0), .keys = keys, .values = Zeros(keys.count)}}};
    } else {
      message.body = Pull{request, {}, {{TableId(0), ValueCodec::kFp32, keys}}};
    }
    const Outbox frame(bundled ? kBundled : 1, Outgoing{ShardPeer(ShardId(0)), message});
    const std::size_t messages = frames * frame.size();
    const double payload = keys.count * sizeof(float);
    const double sent = kMessageBytes + (push ? payload : 0), got = kMessageBytes + (push ? 0 : payload);
    const double process_begin = CpuNs(CLOCK_PROCESS_CPUTIME_ID), begin = CpuNs(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < frames; ++i) transport_.Send(frame);
    const double between = CpuNs(CLOCK_THREAD_CPUTIME_ID);
    for (std::size_t answers = 0; answers < messages;) {
      received_.clear();
      answers += transport_.Receive(&received_, 256, -1);
    }
    const double end = CpuNs(CLOCK_THREAD_CPUTIME_ID), process_end = CpuNs(CLOCK_PROCESS_CPUTIME_ID);
    if (!counts) return;
    const double n = double(messages);
    send_.push_back({{n, n * sent, 0, double(frames)}, between - begin});
    receive_.push_back({{n, n * got, 0, double(frames)}, end - between});
    io_.push_back({{double(frames), n * sent, 0, n * got}, std::max(1.0, process_end - process_begin - (end - begin))});
  }

  void SetCosts(Costs* costs) const {
    (*costs)[Work::kSend] = Fit(send_);
    (*costs)[Work::kReceive] = Fit(receive_);
    const Line io = Fit(io_);
    (*costs)[Work::kIoSend] = {.message_ns = io.message_ns / 2, .row_ns = io.row_ns};
    (*costs)[Work::kIoReceive] = {.message_ns = io.message_ns / 2, .row_ns = io.third_ns};
  }

 private:
  net::ZmqContext context_;
  net::ZmqTransport transport_;
  std::vector<net::Received> received_;
  std::vector<Sample> send_, receive_, io_;
};

}  // namespace

Status MeasureTransport(double seconds, Costs* costs) {
  int ends[2];
  bench::Require(pipe(ends) == 0, "cannot create a pipe");
  const bench::Child echo = bench::Fork([&] { Echo(ends[1]); });
  close(ends[1]);  // so that read() returns 0 if the echo process exits
  std::string endpoint(kEndpointBytes, '\0');
  bench::Require(read(ends[0], endpoint.data(), endpoint.size()) == ssize_t(kEndpointBytes),
                 "the echo process did not start");
  endpoint.resize(endpoint.find('\0'));
  EchoClient client(endpoint);
  struct Case {
    int frames;
    bool bundled;
    std::uint32_t values;
  };
  constexpr Case kCases[] = {{64, false, 1},    {64, false, 256}, {32, false, 4096},
                             {8, false, 65536}, {32, true, 1},    {32, true, 64}};
  const double begin = bench::Now();
  for (bool counts : {false, true}) do
      for (const Case& c : kCases)
        for (bool push : {false, true}) client.Round(c.frames, c.bundled, c.values, push, counts);
    while (counts && bench::Now() - begin < seconds);
  client.SetCosts(costs);
  std::vector<double> trips;
  for (int i = 0; i < 2000; ++i) {
    const double before = bench::Now();
    client.Round(1, false, 1, false, false);
    trips.push_back((bench::Now() - before) * 1e9);
  }
  double work = 0;
  for (const Work each : {Work::kSend, Work::kReceive, Work::kIoSend, Work::kIoReceive})
    work += (*costs)[each]({1, kMessageBytes, 0, each == Work::kSend || each == Work::kReceive ? 1.0 : 0.0});
  costs->local_latency_ns = std::max(0.0, bench::Quantile(&trips, 0.5) / 2 - work);
  return {};
}

}  // namespace tarn::scale
