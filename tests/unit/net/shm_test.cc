// Shows that messages of any size pass through shared memory whole and in order, even if the ring is small; that
// sleeping readers and writers are woken; and that nothing the other side writes, and no way in which it ends, does
// more than end the channel.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/hash.h"
#include "net/shm_channel.h"
#include "net/shm_segment.h"
#include "net/wake_file.h"
#include "tests/unit/net/shm_messages.h"

namespace tarn::net {
namespace {

constexpr std::size_t kPage = 4096;

struct Ends {
  std::optional<ShmChannel> server, client;
  Descriptor server_wake = NewWakeFile(), client_wake = NewWakeFile();
};

Descriptor CopyOf(const Descriptor& file) { return Descriptor(fcntl(file.get(), F_DUPFD_CLOEXEC, 0)); }

// The two ends of a channel, in this process. `keep` receives the segment's file, for tests that write to it.
Ends MakeEnds(std::size_t ring_bytes = kRing, int* keep = nullptr) {
  auto segment = ShmSegment::Create(ring_bytes);
  EXPECT_TRUE(segment) << segment.error().message;
  const int file = fcntl(segment->file(), F_DUPFD_CLOEXEC, 0);
  if (keep != nullptr) *keep = fcntl(segment->file(), F_DUPFD_CLOEXEC, 0);
  auto mapped = ShmSegment::Map(Descriptor(file));
  EXPECT_TRUE(mapped) << mapped.error().message;
  std::array<int, 2> sockets{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets.data()), 0);
  Ends ends;
  ends.server.emplace(ShmSide::kServer, std::move(*segment), Descriptor(sockets[0]), CopyOf(ends.client_wake));
  ends.client.emplace(ShmSide::kClient, std::move(*mapped), Descriptor(sockets[1]), CopyOf(ends.server_wake));
  return ends;
}

// One frame or three, from nothing to many times the ring.
Frames RandomFrames(SplitMix* random) {
  constexpr std::array<std::size_t, 5> kMost = {1, 64, 3000, 40'000, 300'000};
  Frames frames(random->Next() % 2 == 0 ? 1 : 3);
  for (Buffer& frame : frames) frame = RandomBytes(random, random->Next() % (kMost[random->Next() % kMost.size()] + 1));
  return frames;
}

TEST(ShmChannelTest, AllSizesThroughASmallRing) {
  SplitMix random(1);
  for (const std::size_t ring : {kRing, 16 * kRing}) {
    Ends ends = MakeEnds(ring);
    ShmFrames got;
    for (int i = 0; i < 300; ++i) {
      const Frames sent = RandomFrames(&random);
      ASSERT_TRUE(ends.client->Send(sent, kAnyBytes));
      for (int turn = 0; turn < 10'000 && !ends.server->Receive(&got); ++turn) ends.client->Flush();
      ASSERT_TRUE(Same(sent, got)) << "message " << i << " of " << sent.size() << " frames, ring of " << ring;
      ASSERT_FALSE(ends.server->Receive(&got));
    }
    EXPECT_EQ(ends.client->waiting_bytes(), 0u);
  }
}

TEST(ShmChannelTest, ManyMessagesWaitInOrder) {
  SplitMix random(2);
  Ends ends = MakeEnds();
  std::vector<Frames> sent;
  std::size_t bytes = 0;
  for (int i = 0; i < 100; ++i) {
    sent.push_back(RandomFrames(&random));
    bytes += BytesOf(sent.back());
    ASSERT_TRUE(ends.server->Send(sent.back(), kAnyBytes));
  }
  EXPECT_GT(ends.server->waiting_messages(), 50u);
  EXPECT_LE(ends.server->waiting_bytes(), bytes);
  ShmFrames got;
  for (const Frames& frames : sent) {
    while (!ends.client->Receive(&got)) ends.server->Flush();
    ASSERT_TRUE(Same(frames, got));
  }
  EXPECT_EQ(ends.server->waiting_messages(), 0u);
}

TEST(ShmChannelTest, WaitingBytesAreBoundedAndAnEmptyChannelTakesAnyMessage) {
  Ends ends = MakeEnds();
  SplitMix random(3);
  EXPECT_TRUE(ends.client->Send({RandomBytes(&random, 100'000)}, 10));
  EXPECT_FALSE(ends.client->Send({RandomBytes(&random, 10)}, 10));
  EXPECT_TRUE(ends.client->Send({RandomBytes(&random, 10)}, 200'000));
  EXPECT_EQ(ends.client->waiting_messages(), 2u);
}

// Each side polls only its own wake file, like a loop; if a wake-up were lost, the test would hang.
TEST(ShmChannelTest, SleepersAreWoken) {
  Ends ends = MakeEnds();
  constexpr std::uint64_t kMessages = 3'000;
  const auto sleep = [](ShmChannel* channel, const Descriptor& wake) {
    if (!channel->Sleep()) return;
    pollfd one{wake.get(), POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, 60'000), 1) << "nobody wakes it";
    channel->Awake();
    ReadWakes(wake.get());
  };
  std::thread writer([&] {
    SplitMix random(4), pause(5);
    ShmFrames none;
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(ends.client->Send(RandomFrames(&random), kAnyBytes));
      while (ends.client->waiting_bytes() != 0) {
        EXPECT_FALSE(ends.client->Receive(&none));
        sleep(&*ends.client, ends.client_wake);
        ends.client->Flush();
      }
      if (pause.Next() % 16 == 0) std::this_thread::yield();
    }
  });
  SplitMix random(4);
  ShmFrames got;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    const Frames expected = RandomFrames(&random);
    while (!ends.server->Receive(&got)) sleep(&*ends.server, ends.server_wake);
    ASSERT_TRUE(Same(expected, got)) << "message " << i;
  }
  writer.join();
}

TEST(ShmChannelTest, ALargeFrameIsReceivedWithoutACopy) {
  Ends ends = MakeEnds(16 * kRing);
  SplitMix random(6);
  const Frames sent = {RandomBytes(&random, 100), RandomBytes(&random, 0), RandomBytes(&random, 200'000)};
  ASSERT_TRUE(ends.client->Send(sent, kAnyBytes));
  ShmFrames got;
  ASSERT_TRUE(ends.server->Receive(&got));
  const std::byte* there = got.views()[2].data;
  const Buffer taken = got.Take(2);
  EXPECT_EQ(taken.data(), there);
  ASSERT_TRUE(ends.client->Send(sent, kAnyBytes));
  ASSERT_TRUE(ends.server->Receive(&got));
  EXPECT_EQ(std::memcmp(taken.data(), sent[2].data(), taken.size()), 0);
}

// The other side has the memory before this side opens it. Counters that it has set by then must not change where a
// ring begins; otherwise frames would be misaligned.
TEST(ShmRingTest, StartsAtZeroWhateverTheOtherSideHasWritten) {
  RingWords words;
  std::vector<std::byte> bytes(2 * kRing);
  words.written = words.read = 3;
  RingReader reader(&words, bytes.data(), kRing);
  EXPECT_EQ(reader.Place(), bytes.data());
  RingWriter writer(&words, bytes.data(), kRing);
  EXPECT_EQ(writer.Place(), bytes.data());
  EXPECT_EQ(writer.Room(), 0u);  // the read counter is 3, but nothing was written
  EXPECT_TRUE(writer.broken());
}

TEST(ShmChannelTest, LentPayloadsStayUntilTheyAreReleased) {
  SplitMix random(11);
  Ends ends = MakeEnds(16 * kRing);
  ends.server->SetLending();
  for (int round = 0; round < 50; ++round) {
    std::vector<Frames> sent;
    for (int i = 0; i < 40; ++i) {
      sent.push_back(RandomFrames(&random));
      ASSERT_TRUE(ends.client->Send(sent.back(), kAnyBytes));
    }
    ShmFrames got;
    for (std::size_t n = 0; n < sent.size();) {
      std::vector<std::pair<std::size_t, Buffer>> lent;
      for (; ends.server->Receive(&got); ++n) {
        ASSERT_TRUE(Same(sent[n], got));
        if (sent[n].size() == 3) lent.emplace_back(n, got.Take(2));
      }
      ends.client->Flush();
      for (const auto& [i, buffer] : lent) {
        if (buffer.empty()) continue;
        ASSERT_EQ(buffer.size(), sent[i][2].size());
        ASSERT_EQ(std::memcmp(buffer.data(), sent[i][2].data(), buffer.size()), 0);
      }
      lent.clear();
      got.Clear();
      ends.server->GiveBack();
      ends.client->Flush();
    }
  }
}

// The other side gets room again before all of its messages are released.
TEST(ShmChannelTest, LendsALimitedNumberAtATime) {
  SplitMix random(14);
  Ends ends = MakeEnds(16 * kRing);
  ends.server->SetLending();
  const Frames sent = {Buffer(), Buffer(), RandomBytes(&random, 2 * kRing + 8)};
  const Frames eighth = {Buffer(), Buffer(), RandomBytes(&random, 2 * kRing)};
  ASSERT_TRUE(ends.client->Send(eighth, kAnyBytes));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.client->Send(sent, kAnyBytes));
  {
    ShmFrames one;
    ASSERT_TRUE(ends.server->Receive(&one));  // which may lend one more
    EXPECT_TRUE(Same(eighth, one));
  }
  for (int i = 0; i < 3; ++i) {
    ShmFrames got;
    ASSERT_TRUE(ends.server->Receive(&got));
    EXPECT_TRUE(Same(sent, got));
    EXPECT_FALSE(ends.server->Receive(&got)) << i;
    got.Clear();
    ends.server->GiveBack();
  }
}

TEST(ShmChannelTest, LentPayloadsOutliveTheChannel) {
  SplitMix random(13);
  Ends ends = MakeEnds(16 * kRing);
  ends.server->SetLending();
  const Buffer sent = RandomBytes(&random, 100'000);
  ASSERT_TRUE(ends.client->Send({Buffer(), Buffer(), sent}, kAnyBytes));
  ShmFrames got;
  ASSERT_TRUE(ends.server->Receive(&got));
  const Buffer lent = got.Take(2);
  ends.client.reset();
  ends.server.reset();
  EXPECT_EQ(std::memcmp(lent.data(), sent.data(), sent.size()), 0);
}

TEST(ShmLaneDeathTest, LentPayloadsMustNotBeKept) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SplitMix random(12);
  Ends ends = MakeEnds(16 * kRing);
  ends.server->SetLending();
  ASSERT_TRUE(ends.client->Send({Buffer(), Buffer(), RandomBytes(&random, 100'000)}, kAnyBytes));
  ShmFrames got;
  ASSERT_TRUE(ends.server->Receive(&got));
  const Buffer kept = got.Take(2);
  got.Clear();
  EXPECT_DEATH(ends.server->GiveBack(), "is still in use");
}

TEST(ShmChannelTest, WrittenMessagesAreReadAfterTheOtherSideHasEnded) {
  SplitMix random(7);
  Ends ends = MakeEnds(16 * kRing);
  const Frames sent = {RandomBytes(&random, 100)};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.client->Send(sent, kAnyBytes));
  ends.client.reset();
  ASSERT_TRUE(IsReadable(ends.server->file()));
  ends.server->TakeEnd();
  EXPECT_TRUE(ends.server->gone());
  ShmFrames got;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(ends.server->ended());
    ASSERT_TRUE(ends.server->Receive(&got));
    EXPECT_TRUE(Same(sent, got));
  }
  EXPECT_FALSE(ends.server->Receive(&got));
  EXPECT_TRUE(ends.server->ended());
  EXPECT_TRUE(ends.server->Send(sent, kAnyBytes));  // dropped without an error
}

TEST(ShmChannelTest, BytesInTheSocketEndTheChannel) {
  Ends ends = MakeEnds();
  EXPECT_FALSE(IsReadable(ends.server->file()));
  ends.server->TakeEnd();
  EXPECT_FALSE(ends.server->ended());
  ASSERT_EQ(send(ends.client->file(), "x", 1, 0), 1);
  ends.server->TakeEnd();
  EXPECT_TRUE(ends.server->ended());
}

TEST(ShmChannelTest, AnIncompleteMessageOfAnEndedSideIsDropped) {
  SplitMix random(8);
  Ends ends = MakeEnds();
  ASSERT_TRUE(ends.client->Send({RandomBytes(&random, 10 * kRing)}, kAnyBytes));
  ShmFrames got;
  EXPECT_FALSE(ends.server->Receive(&got));
  ends.client.reset();
  ends.server->TakeEnd();
  EXPECT_FALSE(ends.server->Receive(&got));
  EXPECT_TRUE(ends.server->ended());
}

// Maps a segment and writes to it. The words of the client's ring follow those of the server's.
class Spoiler {
 public:
  explicit Spoiler(int file, std::size_t ring_bytes)
      : bytes_(static_cast<std::byte*>(
            mmap(nullptr, kPage + 2 * ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0))),
        size_(kPage + 2 * ring_bytes),
        ring_(bytes_ + kPage + ring_bytes) {
    close(file);
  }
  ~Spoiler() { munmap(bytes_, size_); }
  RingWords* words() { return reinterpret_cast<RingWords*>(bytes_ + 64) + 1; }
  std::byte* ring() { return ring_; }

 private:
  std::byte* bytes_;
  std::size_t size_;
  std::byte* ring_;
};

TEST(ShmChannelTest, ImpossibleCountersEndTheChannel) {
  int file = -1;
  Ends ends = MakeEnds(kRing, &file);
  Spoiler spoiler(file, kRing);
  spoiler.words()->written.store(kRing + 1);
  ShmFrames got;
  EXPECT_FALSE(ends.server->Receive(&got));
  EXPECT_TRUE(ends.server->ended());
  EXPECT_FALSE(ends.server->Receive(&got));
}

TEST(ShmChannelTest, AReadCounterBeyondTheWriteCounterEndsTheChannel) {
  int file = -1;
  Ends ends = MakeEnds(kRing, &file);
  Spoiler spoiler(file, kRing);
  spoiler.words()->read.store(7);
  SplitMix random(9);
  EXPECT_TRUE(ends.client->Send({RandomBytes(&random, 100)}, kAnyBytes));
  EXPECT_TRUE(ends.client->ended());
}

TEST(ShmChannelTest, InvalidHeadersEndTheChannel) {
  const std::vector<std::vector<std::uint32_t>> heads = {
      {0, 0},                                          // no frames
      {65, 0},                                         // too many
      {0xffffffff, 0},                                 //
      {1, std::uint32_t(limits::kFrameBytesMax) + 1},  // too large
      {1, 0xffffffff},                                 //
      {4, 40'000, 40'000, 40'000, 40'000, 0},          // many frames are small ones
      {3, 64u << 20, 64u << 20, 64u << 20},            // too large together
  };
  for (const auto& head : heads) {
    int file = -1;
    Ends ends = MakeEnds(kRing, &file);
    Spoiler spoiler(file, kRing);
    std::memcpy(spoiler.ring(), head.data(), head.size() * sizeof(head[0]));
    spoiler.words()->written.store(1024);
    ShmFrames got;
    EXPECT_FALSE(ends.server->Receive(&got));
    EXPECT_TRUE(ends.server->ended()) << head[0] << " frames, the first of " << head[1] << " bytes";
  }
}

// With any bytes in the ring nothing crashes, and received payloads lie within the ring or in buffers.
TEST(ShmChannelTest, RandomBytesInTheRingAreSafe) {
  SplitMix random(10);
  for (int i = 0; i < 300; ++i) {
    int file = -1;
    Ends ends = MakeEnds(kRing, &file);
    Spoiler spoiler(file, kRing);
    for (std::size_t at = 0; at < kRing; at += 4) {
      const auto word = std::uint32_t(random.Next() % (random.Next() % 4 == 0 ? 1u << 31 : 200));
      std::memcpy(spoiler.ring() + at, &word, sizeof(word));
    }
    spoiler.words()->written.store(random.Next() % (kRing + 1) & ~std::uint64_t{7});
    ShmFrames got;
    std::uint64_t sum = 0;
    for (int turn = 0; turn < 300 && ends.server->Receive(&got); ++turn)
      for (const FrameView& view : got.views())
        for (std::size_t b = 0; b < view.size; ++b) sum += std::to_integer<std::uint64_t>(view.data[b]);
    EXPECT_LT(sum, std::uint64_t{1} << 40);
  }
}

TEST(ShmSegmentTest, OtherFilesAreRefused) {
  const auto code = [](int file) {
    auto mapped = ShmSegment::Map(Descriptor(file));
    return mapped ? ErrorCode::kOk : mapped.error().code;
  };
  EXPECT_EQ(code(-1), ErrorCode::kMalformed);
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, kPage + 2 * kRing), 0);
  EXPECT_EQ(code(fcntl(unsealed, F_DUPFD_CLOEXEC, 0)), ErrorCode::kMalformed);
  ASSERT_EQ(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(code(unsealed), ErrorCode::kMalformed);  // zeros
}

TEST(ShmSegmentTest, ASegmentCannotBeTruncated) {
  auto segment = ShmSegment::Create(kRing);
  ASSERT_TRUE(segment);
  EXPECT_NE(ftruncate(segment->file(), 0), 0);
}

}  // namespace
}  // namespace tarn::net
