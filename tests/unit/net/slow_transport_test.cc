// Shows that messages are delayed by their latency and their link's bandwidth, keep their order, and are not lost.
#include "net/slow_transport.h"

#include <gtest/gtest.h>

#include <optional>

namespace tarn::net {
namespace {

constexpr Peer kShard(1), kOther(2);
constexpr TimeUs kHour = 3'600'000'000;

Message TickTo(std::uint64_t clock) {
  Message message;
  message.body = Tick{Clock(clock), {}, {}};
  return message;
}

// Records sent messages, and receives those that the test adds.
class Recorder final : public Transport {
 public:
  Expected<std::string> Bind(const std::string& endpoint) override { return endpoint; }
  Status Connect(Peer, const std::string&) override { return {}; }
  void Send(Peer to, const Message& message) override {
    sent.emplace_back(to, std::get<Tick>(message.body).clock.value);
  }
  using Transport::Send;
  std::size_t Receive(std::vector<Received>* out, std::size_t, std::int64_t timeout_us) override {
    timeouts.push_back(timeout_us);
    for (const Message& message : coming) out->push_back({kShard, message});
    const std::size_t n = coming.size();
    coming.clear();
    return n;
  }
  void Wake() override {}
  TransportCounters counters() const override { return {}; }

  std::vector<std::pair<Peer, std::uint64_t>> sent;
  std::vector<Message> coming;
  std::vector<std::int64_t> timeouts;
};

class SlowTransportTest : public ::testing::Test {
 protected:
  void Open(std::vector<TimeUs> latencies, double us_per_byte = 0) {
    slow_.emplace(
        &inner_,
        SlowTransportOptions{
            .latency = [latencies, next = std::size_t{0}]() mutable { return latencies[next++ % latencies.size()]; },
            .us_per_byte = us_per_byte});
  }
  std::size_t Receive(std::int64_t timeout_us = 0) { return slow_->Receive(&received_, 100, timeout_us); }

  Recorder inner_;
  std::optional<SlowTransport> slow_;
  std::vector<Received> received_;
};

TEST_F(SlowTransportTest, WithoutDelaysMessagesPassAtOnce) {
  Open({0});
  slow_->Send(kShard, TickTo(1));
  EXPECT_EQ(inner_.sent.size(), 1u);
  inner_.coming.push_back(TickTo(2));
  EXPECT_EQ(Receive(50'000), 1u);
  EXPECT_EQ(inner_.timeouts, std::vector<std::int64_t>{50'000});
}

TEST_F(SlowTransportTest, AMessageWaitsForItsLatencyAndIsSentAtTheEnd) {
  Open({kHour});
  slow_->Send(kShard, TickTo(1));
  EXPECT_EQ(Receive(), 0u);
  EXPECT_TRUE(inner_.sent.empty());
  slow_.reset();
  EXPECT_EQ(inner_.sent.size(), 1u);
}

TEST_F(SlowTransportTest, MessagesToAPeerKeepTheirOrder) {
  Open({kHour, 0, 0});
  slow_->Send(kShard, TickTo(1));
  slow_->Send(kShard, TickTo(2));
  slow_->Send(kOther, TickTo(3));
  EXPECT_EQ(inner_.sent, (std::vector<std::pair<Peer, std::uint64_t>>{{kOther, 3}})) << "another peer's overtake them";
  slow_.reset();
  EXPECT_EQ(inner_.sent, (std::vector<std::pair<Peer, std::uint64_t>>{{kOther, 3}, {kShard, 1}, {kShard, 2}}));
}

// The first message passed the idle link while it was sent; the second waits for the link.
TEST_F(SlowTransportTest, ArrivalsShareTheLink) {
  Open({0}, 1e6);  // one second a byte
  inner_.coming = {TickTo(1), TickTo(2)};
  EXPECT_EQ(Receive(), 1u);
  slow_->Send(kShard, TickTo(3));
  EXPECT_TRUE(inner_.sent.empty()) << "a message waits on its way out";
}

// The inner transport may hand out more messages than asked for, whose payloads are valid only until its next Receive.
TEST_F(SlowTransportTest, ArrivedMessagesOwnTheirPayloads) {
  Open({0});
  const std::string bytes = "payload";
  const Buffer payload = Buffer::Copy(bytes.data(), bytes.size());
  Message message;
  message.body = Push{.tables = {{}, {.keys = {.frame = payload}, .values = payload}}};
  inner_.coming = {message, message};
  EXPECT_EQ(slow_->Receive(&received_, 1, 0), 1u);
  EXPECT_EQ(slow_->Receive(&received_, 1, 0), 1u);
  for (const Received& each : received_) {
    const PushPart& part = std::get<Push>(each.message.body).tables.at(1);
    for (const Buffer& owned : {part.keys.frame, part.values}) {
      EXPECT_NE(owned.data(), payload.data());
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(owned.data()), owned.size()), bytes);
    }
  }
}

TEST_F(SlowTransportTest, ReceiveWaitsAtMostUntilAMessageIsDue) {
  Open({2'000});
  slow_->Send(kShard, TickTo(1));
  while (inner_.sent.empty()) Receive(-1);
  for (const std::int64_t timeout : inner_.timeouts) EXPECT_TRUE(timeout >= -1 && timeout <= 2'000) << timeout;
  EXPECT_NE(inner_.timeouts.front(), -1) << "then Receive would not return";
}

TEST(SlowNetworkTest, OnlySettingsOfTheJobDelayARealRun) {
  Job job;
  EXPECT_FALSE(HasSlowNetwork(job.delays));
  EXPECT_EQ(SlowNetwork(job, Role::kWorker, 0).us_per_byte, 0);
  job.delays.gbit_per_second = 1;
  EXPECT_TRUE(HasSlowNetwork(job.delays));
  EXPECT_DOUBLE_EQ(SlowNetwork(job, Role::kWorker, 0).us_per_byte, 8e-3);
  job = Job();
  job.delays.latency = {Distribution::Kind::kUniform, 0.001, 0.002};
  EXPECT_TRUE(HasSlowNetwork(job.delays));
  const auto one = SlowNetwork(job, Role::kWorker, 1), again = SlowNetwork(job, Role::kWorker, 1),
             other = SlowNetwork(job, Role::kShard, 1);
  const TimeUs first = one.latency();
  EXPECT_TRUE(first >= 1'000 && first <= 2'000) << first;
  EXPECT_EQ(again.latency(), first);
  EXPECT_NE(other.latency(), first);
}

}  // namespace
}  // namespace tarn::net
