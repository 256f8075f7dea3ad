// Shows that the gate keeps each peer's messages in their order, lets those of other peers pass, and is bounded (tested
// at its limits and one past them).
#include "server/tier/cold_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/hash.h"
#include "sim/disks/memory_cold_store.h"

namespace tarn::server {
namespace {

class ColdGateTest : public testing::Test {
 protected:
  ColdGateTest() {
    auto store = std::make_unique<MemoryColdStore>([] {});
    store_ = store.get();
    tier_ = std::make_unique<Residency>(ResidencyOptions{.limit_bytes = 1, .places = 1}, std::move(store));
    rows_ = tier_->AddTable(TableId(1), 4);
    // Creates rows on disk for messages to wait for.
    for (std::uint32_t number = 0; number < 200; ++number) {
      EXPECT_TRUE(tier_->Reserve(rows_, 1));
      rows_->Add(0, number);
    }
    while (store_->under_way() != 0) store_->RunOne();
    EXPECT_TRUE(tier_->Poll());
  }
  // The ticket of a new fetch, of a row that no other ticket fetches.
  FetchTicket NextTicket() {
    while (!rows_->IsCold(0, next_row_)) ++next_row_;
    const RowOwner owner{0, next_row_++};
    return tier_->Fetch(rows_, {&owner, 1});
  }
  void EndOne() {
    store_->RunOne();
    EXPECT_TRUE(tier_->Poll());
  }
  std::vector<ColdGate::Waiting> TakeReady(ColdGate* gate) {
    return gate->TakeReady([this](FetchTicket ticket) {
      ++looks_;
      return tier_->Ended(ticket);
    });
  }
  static Message PullOf(std::uint64_t request, std::size_t key_bytes = 8) {
    Message message;
    message.body =
        Pull{.request = RequestId(request), .tables = {PullPart{.keys = {.frame = Buffer::Allocate(key_bytes)}}}};
    return message;
  }
  static std::uint64_t RequestOf(const ColdGate::Waiting& waiting) {
    return std::get<Pull>(waiting.message.body).request.value;
  }

  MemoryColdStore* store_ = nullptr;
  std::unique_ptr<Residency> tier_;
  ResidentRows* rows_ = nullptr;
  std::uint32_t next_row_ = 0;
  std::size_t looks_ = 0;  // at whether a fetch has ended
};

TEST_F(ColdGateTest, KeepsTheOrderOfAPeerAndLetsOthersPass) {
  ColdGate gate;
  const Peer a(1), b(2);
  Message first = PullOf(1), second = PullOf(2), others = PullOf(3);
  const FetchTicket early = NextTicket(), late = NextTicket();
  ASSERT_LT(early, late);
  ASSERT_TRUE(gate.Add(a, &first, late));
  ASSERT_TRUE(gate.Add(a, &second, 0));  // its rows are in memory, but it is behind the first message
  ASSERT_TRUE(gate.Add(b, &others, early));
  EXPECT_TRUE(gate.Holds(a));
  EXPECT_TRUE(TakeReady(&gate).empty());
  EndOne();
  auto ready = TakeReady(&gate);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(RequestOf(ready[0]), 3u);
  EXPECT_FALSE(gate.Holds(b));
  EndOne();
  ready = TakeReady(&gate);
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(RequestOf(ready[0]), 1u);
  EXPECT_EQ(RequestOf(ready[1]), 2u);
  EXPECT_EQ(gate.size(), 0u);
  EXPECT_EQ(gate.bytes(), 0u);
}

TEST_F(ColdGateTest, RecognizesARepetitionOfAWaitingMessage) {
  ColdGate gate;
  Message message = PullOf(7);
  ASSERT_TRUE(gate.Add(Peer(1), &message, NextTicket()));
  EXPECT_TRUE(gate.TakesRepetition(Peer(1), PullOf(7)));
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), PullOf(8)));
  EXPECT_FALSE(gate.TakesRepetition(Peer(2), PullOf(7)));
}

Message PushOf(std::uint64_t request, std::uint64_t sequence, KeyCodec codec = KeyCodec::kRaw) {
  Message message;
  message.sender = {Role::kWorker, 0, Incarnation(3)};
  message.epoch = Epoch(1);
  PushPart part{.table = TableId(1)};
  part.keys = {codec, 0, 2, {{PartitionId(0), 1, Sequence(sequence)}, {PartitionId(2), 1, Sequence(sequence + 5)}}};
  message.body = Push{.request = RequestId(request), .tables = {part}};
  return message;
}
TableParts<PushPart>& TablesOf(Message& push) { return std::get<Push>(push.body).tables; }
// PushOf with a second table, whose rows are in partition 3.
Message PushOfTwo(std::uint64_t request, std::uint64_t sequence, KeyCodec of_second = KeyCodec::kRaw) {
  Message message = PushOf(request, sequence);
  PushPart second{.table = TableId(2)};
  second.keys = {of_second, 0, 1, {{PartitionId(3), 1, Sequence(sequence)}}};
  TablesOf(message).push_back(second);
  return message;
}

// Each attempt of a push has its own request id, but the push waits only once (T2).
TEST_F(ColdGateTest, ARepeatedPushWaitsOnceAndAnswersToTheNewestAttempt) {
  ColdGate gate(2, 1 << 20);
  Message push = PushOf(10, 1), next = PushOf(20, 2);
  const FetchTicket ticket = NextTicket();
  ASSERT_TRUE(gate.Add(Peer(1), &push, ticket));
  ASSERT_TRUE(gate.Add(Peer(1), &next, 0));
  const std::size_t bytes = gate.bytes();
  for (std::uint64_t attempt = 100; attempt < 1100; attempt += 2) {
    EXPECT_TRUE(gate.TakesRepetition(Peer(1), PushOf(attempt, 1)));
    EXPECT_TRUE(gate.TakesRepetition(Peer(1), PushOf(attempt + 1, 2)));
  }
  EXPECT_EQ(gate.size(), 2u);
  EXPECT_EQ(gate.bytes(), bytes);
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), PushOf(2000, 3))) << "another push";
  EXPECT_FALSE(gate.TakesRepetition(Peer(2), PushOf(2000, 1))) << "another connection";
  Message cut_anew = PushOf(2000, 1);
  TablesOf(cut_anew)[0].keys.sections.pop_back();
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), cut_anew)) << "another cut of it";
  cut_anew = PushOf(2000, 1);
  cut_anew.epoch = Epoch(2);
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), cut_anew)) << "of a newer route map";
  EndOne();
  const auto ready = TakeReady(&gate);
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(std::get<Push>(ready[0].message.body).request, RequestId(1098));
  EXPECT_EQ(std::get<Push>(ready[1].message.body).request, RequestId(1099));
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), PushOf(3000, 1))) << "it waits no more";
}

// A push that names a list which the shard does not hold is sent again with its keys. The gate must not drop the latter
// as a repetition.
TEST_F(ColdGateTest, APushWithItsKeysIsNoRepetitionOfOneWithout) {
  ColdGate gate;
  Message by_name = PushOf(1, 1, KeyCodec::kHeld), with_keys = PushOf(2, 1);
  ASSERT_TRUE(gate.Add(Peer(1), &by_name, NextTicket()));
  EXPECT_TRUE(gate.TakesRepetition(Peer(1), PushOf(5, 1, KeyCodec::kHeld)));
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), with_keys));
  ASSERT_TRUE(gate.Add(Peer(1), &with_keys, 0));
  EXPECT_TRUE(gate.TakesRepetition(Peer(1), PushOf(6, 1)));
}

TEST_F(ColdGateTest, ARepeatedPushOfTwoTablesWaitsOnce) {
  ColdGate gate;
  Message push = PushOfTwo(10, 1);
  ASSERT_TRUE(gate.Add(Peer(1), &push, NextTicket()));
  EXPECT_TRUE(gate.TakesRepetition(Peer(1), PushOfTwo(11, 1)));
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), PushOf(12, 1))) << "without the second table";
  Message other = PushOfTwo(12, 1);
  TablesOf(other)[1].keys.sections[0].sequence = Sequence(2);
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), other)) << "another section of the second table";
  EXPECT_EQ(gate.size(), 1u);
  EndOne();
  const auto ready = TakeReady(&gate);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(std::get<Push>(ready[0].message.body).request, RequestId(11));
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), PushOfTwo(13, 1))) << "it waits no more";
}

TEST_F(ColdGateTest, APushWithTheKeysOfAllTablesIsNoRepetitionOfOneWithout) {
  ColdGate gate;
  Message by_name = PushOfTwo(1, 1, KeyCodec::kHeld);
  ASSERT_TRUE(gate.Add(Peer(1), &by_name, NextTicket()));
  EXPECT_TRUE(gate.TakesRepetition(Peer(1), PushOfTwo(2, 1, KeyCodec::kHeld)));
  EXPECT_FALSE(gate.TakesRepetition(Peer(1), PushOfTwo(3, 1)));
}

TEST_F(ColdGateTest, TakesMessagesUpToItsLimit) {
  ColdGate gate(3, 1 << 20);
  for (std::uint64_t n = 0; n < 3; ++n) {
    Message message = PullOf(n);
    EXPECT_TRUE(gate.Add(Peer(n), &message, NextTicket()));
  }
  Message past = PullOf(3);
  EXPECT_FALSE(gate.Add(Peer(9), &past, NextTicket()));
  EXPECT_EQ(PayloadBytes(past), 8u);  // the refused message is intact
  EXPECT_FALSE(gate.Holds(Peer(9)));
}

TEST_F(ColdGateTest, TakesBytesUpToItsLimit) {
  const std::size_t each = sizeof(ColdGate::Waiting) + 1000;
  ColdGate gate(100, 2 * each);
  Message first = PullOf(1, 1000), second = PullOf(2, 1000), third = PullOf(3, 0);
  EXPECT_TRUE(gate.Add(Peer(1), &first, NextTicket()));
  EXPECT_TRUE(gate.Add(Peer(2), &second, NextTicket()));
  EXPECT_FALSE(gate.Add(Peer(3), &third, NextTicket()));
  EXPECT_EQ(gate.bytes(), 2 * each);
}

TEST_F(ColdGateTest, CountsSectionsAndSeveralTables) {
  ColdGate gate;
  Message message = PullOf(1, 1000);
  auto& tables = std::get<Pull>(message.body).tables;
  tables.resize(2);
  tables[1].keys.sections.resize(100);
  const std::size_t lists = 2 * sizeof(PullPart) + (tables[0].keys.sections.size() + 100) * sizeof(Section);
  EXPECT_TRUE(gate.Add(Peer(1), &message, NextTicket()));
  EXPECT_EQ(gate.bytes(), sizeof(ColdGate::Waiting) + 1000 + lists);
}

TEST_F(ColdGateTest, ALowerLimitRefusesNewMessagesAndKeepsWaitingOnes) {
  ColdGate gate;
  Message first = PullOf(1), second = PullOf(2);
  EXPECT_TRUE(gate.Add(Peer(1), &first, NextTicket()));
  gate.SetBound(sizeof(ColdGate::Waiting) + 8);
  EXPECT_FALSE(gate.Add(Peer(2), &second, NextTicket()));
  EXPECT_EQ(gate.size(), 1u);
}

TEST_F(ColdGateTest, AnEmptyGateTakesAMessageOfAnySize) {
  ColdGate gate(0, 500);
  Message large = PullOf(1, 1000), second = PullOf(2);
  EXPECT_TRUE(gate.Add(Peer(1), &large, NextTicket()));
  EXPECT_FALSE(gate.Add(Peer(2), &second, NextTicket()));
}

// Messages that arrived when no more fetches could begin.
TEST_F(ColdGateTest, BeginsFetchesInOrderOnceThereIsRoom) {
  ColdGate gate;
  for (std::uint64_t n = 1; n <= 3; ++n) {
    Message message = PullOf(n);
    ASSERT_TRUE(gate.Add(Peer(n), &message, ColdGate::kNotBegun));
  }
  std::vector<std::uint64_t> asked;
  const auto begin = [&](const Message& message) {
    asked.push_back(std::get<Pull>(message.body).request.value);
    return asked.size() == 2 ? ColdGate::kNotBegun : NextTicket();
  };
  gate.BeginFetches(begin);
  EXPECT_EQ(asked, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_TRUE(TakeReady(&gate).empty());
  EndOne();
  EXPECT_EQ(TakeReady(&gate).size(), 1u);
  gate.BeginFetches(begin);
  EXPECT_EQ(asked, (std::vector<std::uint64_t>{1, 2, 2, 3}));
}

TEST_F(ColdGateTest, WaitingMessagesAreNotPolled) {
  ColdGate gate;
  for (std::uint64_t n = 0; n < 100; ++n)
    for (std::uint64_t request = 1; request <= 10; ++request) {
      Message message = PullOf(request);
      ASSERT_TRUE(gate.Add(Peer(n), &message, request == 1 ? NextTicket() : 0));
    }
  for (int turn = 0; turn < 100; ++turn) EXPECT_TRUE(TakeReady(&gate).empty());
  EXPECT_EQ(looks_, 100u);
  EndOne();
  EXPECT_EQ(TakeReady(&gate).size(), 10u);
  EXPECT_LT(looks_, 120u);
}

// Compares the gate with a list of all waiting messages.
TEST_F(ColdGateTest, AgreesWithAModelInWhichEachPeerWaitsForItself) {
  struct Waits {
    Peer from;
    std::uint64_t request;
    FetchTicket ticket;
  };
  ColdGate gate;
  std::vector<Waits> list;
  SplitMix random(5);
  for (std::uint64_t step = 1; step <= 3000; ++step) {
    if (random.Chance(0.6) && next_row_ < 150) {
      const Peer from(random.Below(6));
      const FetchTicket ticket = random.Chance(0.3) ? 0 : random.Chance(0.3) ? ColdGate::kNotBegun : NextTicket();
      Message message = PullOf(step);
      ASSERT_TRUE(gate.Add(from, &message, ticket));
      list.push_back({from, step, ticket});
    } else if (random.Chance(0.3)) {
      gate.BeginFetches([&](const Message& message) {
        const FetchTicket ticket = random.Chance(0.2) ? ColdGate::kNotBegun : FetchTicket{random.Below(next_row_ + 1)};
        std::ranges::find(list, std::get<Pull>(message.body).request.value, &Waits::request)->ticket = ticket;
        return ticket;
      });
    } else {
      EndOne();
    }
    std::set<Peer> held;
    std::vector<std::uint64_t> expected;
    std::erase_if(list, [&](const Waits& one) {
      if (held.contains(one.from) || one.ticket == ColdGate::kNotBegun || !tier_->Ended(one.ticket)) {
        held.insert(one.from);
        return false;
      }
      expected.push_back(one.request);
      return true;
    });
    std::vector<std::uint64_t> taken;
    for (const ColdGate::Waiting& one : TakeReady(&gate)) taken.push_back(RequestOf(one));
    ASSERT_EQ(taken, expected) << "step " << step;
    ASSERT_EQ(gate.size(), list.size());
  }
}

}  // namespace
}  // namespace tarn::server
