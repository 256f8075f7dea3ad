// Shows what ends a wait, whether it sleeps or polls: a timeout, a message, room for waiting messages, another thread.
#include "net/zmq/event_wait.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "net/zmq/clock.h"
#include "net/zmq/socket_sender.h"
#include "tests/unit/net/zmq/sockets_fixture.h"

namespace tarn::net {
namespace {

const Peer kShard = ShardPeer(ShardId(0));
constexpr TimeUs kLongUs = 60'000'000, kShortUs = 20'000;

class EventWaitTest : public SocketsTest {
 protected:
  void SetUp() override {
    SocketsTest::SetUp();
    shm_.Step(NowUs());
    Empty();
  }
  // Receives until all lanes are empty, which a wait requires.
  void Empty() {
    Parts parts;
    while (router_.socket()->Receive(&parts)) {
    }
    links_.ForEach([&](const LaneId&, PolledSocket& lane) {
      while (lane.Receive(&parts)) {
      }
    });
  }
  // Waits until `done`, for a limited number of turns: internal events of ZeroMQ also end a wait, until a Receive
  // handles them.
  template <typename Done>
  bool WaitUntil(Done done) {
    for (int i = 0; i < 20; ++i) {
      if (done()) return true;
      EXPECT_TRUE(wait_.Wait(kLongUs));
    }
    return false;
  }

  ShmPeers shm_{{}, [](Peer, const ShmHandshake&) { return false; }};
  SocketSender sockets_{&router_, &links_, 1 << 20};
  WakeEvent wake_;
  EventWait wait_{&router_, &links_, &shm_, &sockets_.backlog(), &wake_};
};

TEST_F(EventWaitTest, ATimeoutEndsIt) {
  const TimeUs begin = NowUs();
  EXPECT_TRUE(wait_.Wait(0));
  EXPECT_TRUE(wait_.Wait(-5));
  while (NowUs() < begin + kShortUs) EXPECT_TRUE(wait_.Wait(begin + kShortUs - NowUs()));
  EXPECT_FALSE(router_.MayHold());
  EXPECT_FALSE(wake_.Take());
}

TEST_F(EventWaitTest, AMessageEndsIt) {
  PolledSocket lane = NewSocket();
  Empty();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(lane.Send({}, FrameOf("x")), SendResult::kSent);
  });
  Parts parts;
  EXPECT_TRUE(WaitUntil([&] { return router_.socket()->Receive(&parts); }));
  other.join();
}

TEST_F(EventWaitTest, AnotherThreadEndsIt) {
  for (const TimeUs busy_us : {TimeUs{0}, kLongUs}) {
    wait_.SetBusyPoll(busy_us);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      wake_.Wake();
    });
    EXPECT_TRUE(WaitUntil([&] { return Empty(), wake_.Take(); }));
    other.join();
  }
}

// As a process does that shares memory with this one, also while messages wait for room in a socket.
TEST_F(EventWaitTest, AnotherProcessEndsIt) {
  Router shard({.socket = kOptions, .accepted_peers_max = 1});
  ASSERT_TRUE(shard.Bind(&context_, "inproc://full"));
  for (const bool backlog : {false, true}) {
    if (backlog) {
      std::vector<PolledSocket> lanes;
      lanes.push_back(NewSocket("inproc://full"));
      links_.Put(kShard, "inproc://full", std::move(lanes));
      while (!sockets_.backlog().Has(kShard)) ASSERT_TRUE(sockets_.SendOrKeep(kShard, FrameOf("x")));
    }
    for (const TimeUs busy_us : {TimeUs{0}, kLongUs}) {
      wait_.SetBusyPoll(busy_us);
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        WriteWake(wake_.file());
      });
      const TimeUs begin = NowUs();
      EXPECT_TRUE(WaitUntil([&] { return Empty(), wake_.readable(); }));
      EXPECT_LT(NowUs() - begin, kLongUs);
      EXPECT_FALSE(wake_.Take());  // nothing for the owner's caller
      EXPECT_FALSE(wake_.readable());
      other.join();
    }
  }
}

TEST_F(EventWaitTest, AnEarlierWakeUpEndsIt) {
  wake_.Wake();
  EXPECT_TRUE(wait_.Wait(kLongUs));
  EXPECT_TRUE(wake_.Take());
}

// Polling the file descriptors does not report room.
TEST_F(EventWaitTest, RoomForWaitingMessagesEndsIt) {
  Router shard({.socket = kOptions, .accepted_peers_max = 1});
  ASSERT_TRUE(shard.Bind(&context_, "inproc://shard"));
  std::vector<PolledSocket> lanes;
  lanes.push_back(NewSocket("inproc://shard"));
  links_.Put(kShard, "inproc://shard", std::move(lanes));
  while (!sockets_.backlog().Has(kShard)) ASSERT_TRUE(sockets_.SendOrKeep(kShard, FrameOf("x")));
  bool takes = false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    wake_.Wake();
  });
  EXPECT_TRUE(WaitUntil([&] { return Empty(), wake_.Take(); }));  // full: only the other thread ends it
  EXPECT_TRUE(sockets_.backlog().Has(kShard));
  other.join();
  Parts parts;
  while (shard.socket()->Receive(&parts)) takes = true;
  EXPECT_TRUE(takes);
  EXPECT_TRUE(WaitUntil([&] { return sockets_.Flush(), sockets_.backlog().empty(); }));
}

}  // namespace
}  // namespace tarn::net
