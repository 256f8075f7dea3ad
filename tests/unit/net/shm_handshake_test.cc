// Shows that a handshake of shared memory is decoded as it was encoded, and that a client without a ticket or a wake
// file gets no memory.
#include "net/shm_handshake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/descriptor.h"
#include "net/shm_channel.h"
#include "net/wake_file.h"
#include "tests/unit/net/shm_messages.h"

namespace tarn::net {
namespace {

constexpr std::size_t kAnyMany = 1'000'000;

TEST(ShmHandshakeTest, IsDecodedAsItWasEncoded) {
  for (const ShmHandshake& word :
       {ShmHandshake{ShmHandshake::Kind::kRequest, BootId(), ""},
        ShmHandshake{ShmHandshake::Kind::kOffer, "tarn-1", "0123"}, ShmHandshake{ShmHandshake::Kind::kRefuse, "", ""},
        ShmHandshake{ShmHandshake::Kind::kSwitch, "", ""}}) {
    const Buffer frame = EncodeShmHandshake(word);
    const auto back = DecodeShmHandshake({frame.data(), frame.size()});
    ASSERT_TRUE(back && *back);
    EXPECT_EQ((*back)->kind, word.kind);
    EXPECT_EQ((*back)->socket, word.socket);
    EXPECT_EQ((*back)->ticket, word.ticket);
  }
}

TEST(ShmHandshakeTest, MalformedHandshakesAreRefused) {
  const Buffer good = EncodeShmHandshake({ShmHandshake::Kind::kOffer, "name", "ticket"});
  EXPECT_FALSE(DecodeShmHandshake({good.data(), 15}));  // no prefix
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Buffer bad = Buffer::Copy(good.data(), good.size());
      bad.data()[at] ^= static_cast<std::byte>(1 << bit);
      const auto word = DecodeShmHandshake({bad.data(), bad.size()});
      if (word && !*word) {
        EXPECT_EQ(word->error().code, ErrorCode::kMalformed);
      }
    }
  }
  const Buffer cut = Buffer::Copy(good.data(), good.size() - 1);
  ASSERT_TRUE(DecodeShmHandshake({cut.data(), cut.size()}));
  EXPECT_FALSE(*DecodeShmHandshake({cut.data(), cut.size()}));
  const Buffer longer = EncodeShmHandshake({ShmHandshake::Kind::kOffer, std::string(65, 'x'), "ticket"});
  EXPECT_FALSE(*DecodeShmHandshake({longer.data(), longer.size()}));
}

class ShmListenerTest : public ::testing::Test {
 protected:
  static Descriptor ConnectedSocket(const std::string& name) {
    Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(connect(made.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    return made;
  }
  // Accepts clients until one is welcomed, for at most `looks` turns.
  std::vector<Peer> Welcomed(int looks = 100) {
    std::vector<Peer> peers;
    for (int i = 0; i < looks && peers.empty(); ++i) {
      listener_->Take(kAnyMany, [&](Peer peer, ShmChannel channel) {
        peers.push_back(peer);
        channels_.push_back(std::move(channel));
      });
      std::this_thread::yield();
    }
    return peers;
  }

  Expected<ShmConnector> Connect(const std::string& ticket) {
    return ShmConnector::Connect(listener_->name(), ticket, client_wake_.get());
  }

  Descriptor server_wake_ = NewWakeFile(), client_wake_ = NewWakeFile();
  Expected<ShmListener> listener_ = ShmListener::Open(kRing, server_wake_.get());
  std::vector<ShmChannel> channels_;
};

TEST_F(ShmListenerTest, ATicketIsValidOnce) {
  ASSERT_TRUE(listener_);
  const std::string ticket = listener_->TicketFor(Peer(7));
  auto connector = Connect(ticket);
  ASSERT_TRUE(connector);
  EXPECT_FALSE(connector->Take());
  EXPECT_EQ(Welcomed(), std::vector{Peer(7)});
  auto channel = connector->Take();
  ASSERT_TRUE(channel && *channel);
  SplitMix random(1);
  const Frames sent = {RandomBytes(&random, 50)};
  ShmFrames got;
  EXPECT_FALSE(channels_[0].Receive(&got));
  ASSERT_TRUE(channels_[0].Sleep());
  ASSERT_TRUE((*channel)->Send(sent, kAnyBytes));
  EXPECT_TRUE(IsReadable(server_wake_.get()));
  EXPECT_FALSE(IsReadable(client_wake_.get()));
  ASSERT_TRUE(channels_[0].Receive(&got));
  EXPECT_TRUE(Same(sent, got));

  auto second = Connect(ticket);
  ASSERT_TRUE(second);
  EXPECT_TRUE(Welcomed().empty());
  auto refused = second->Take();
  ASSERT_TRUE(refused);
  EXPECT_FALSE(*refused);
}

TEST_F(ShmListenerTest, StrangersGetNoMemory) {
  ASSERT_TRUE(listener_);
  listener_->TicketFor(Peer(7));
  for (const std::string& ticket : {std::string(32, '0'), std::string("short"), std::string(100, 'x')}) {
    auto connector = Connect(ticket);
    ASSERT_TRUE(connector);
    EXPECT_TRUE(Welcomed(3).empty());
    auto refused = connector->Take();
    ASSERT_TRUE(refused);
    EXPECT_FALSE(*refused);
  }
}

// A client without a wake file, or with a file that could block the server or raise a signal, gets no memory; its
// ticket stays valid.
TEST_F(ShmListenerTest, OtherFilesThanWakeFilesAreRefused) {
  ASSERT_TRUE(listener_);
  const std::string ticket = listener_->TicketFor(Peer(7));
  const Descriptor blocks(eventfd(0, EFD_CLOEXEC));
  std::array<int, 2> pipe{};
  ASSERT_EQ(pipe2(pipe.data(), O_NONBLOCK | O_CLOEXEC), 0);
  const Descriptor reads(pipe[0]), writes(pipe[1]);
  for (const int file : {blocks.get(), writes.get()}) {
    auto connector = ShmConnector::Connect(listener_->name(), ticket, file);
    ASSERT_TRUE(connector);
    EXPECT_TRUE(Welcomed(3).empty());
  }
  const Descriptor without = ConnectedSocket(listener_->name());
  ASSERT_EQ(send(without.get(), ticket.data(), ticket.size(), 0), static_cast<ssize_t>(ticket.size()));
  EXPECT_TRUE(Welcomed(3).empty());
  auto connector = Connect(ticket);
  EXPECT_EQ(Welcomed(), std::vector{Peer(7)});
}

TEST_F(ShmListenerTest, FilesOfAnEmptyMessageAreClosed) {
  ASSERT_TRUE(listener_);
  const Descriptor client = ConnectedSocket(listener_->name());
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec nothing{};
  msghdr message{};
  message.msg_iov = &nothing;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int file = client_wake_.get();
  std::memcpy(CMSG_DATA(rights), &file, sizeof(file));
  ASSERT_EQ(sendmsg(client.get(), &message, 0), 0);
  const auto open_files = [] { return std::ranges::distance(std::filesystem::directory_iterator("/proc/self/fd")); };
  const auto before = open_files();
  EXPECT_TRUE(Welcomed(3).empty());
  EXPECT_EQ(open_files(), before);
}

TEST(ShmConnectorTest, AServersFileMustBeAWakeFile) {
  const Descriptor blocks(eventfd(0, EFD_CLOEXEC)), wake = NewWakeFile();
  auto listener = ShmListener::Open(kRing, blocks.get());
  ASSERT_TRUE(listener);
  auto connector = ShmConnector::Connect(listener->name(), listener->TicketFor(Peer(7)), wake.get());
  ASSERT_TRUE(connector);
  listener->Take(1, [](Peer, const ShmChannel&) {});
  auto channel = connector->Take();
  ASSERT_TRUE(channel);
  ASSERT_FALSE(*channel);
  EXPECT_EQ(channel->error().message, "sent no wake file");
}

TEST_F(ShmListenerTest, ManyClientsAtOnceAreServed) {
  ASSERT_TRUE(listener_);
  std::vector<ShmConnector> connectors;
  for (std::uint64_t n = 0; n < limits::kShmUnidentifiedMax + 50; ++n) {
    auto connector = Connect(listener_->TicketFor(Peer(n)));
    ASSERT_TRUE(connector) << connector.error().message;
    connectors.push_back(std::move(*connector));
  }
  std::size_t welcomed = 0;
  for (std::size_t seen = 0; seen < connectors.size(); seen += ShmListener::kArrivalsMax)
    listener_->Take(kAnyMany, [&](Peer, ShmChannel) { ++welcomed; });
  EXPECT_EQ(welcomed, connectors.size());
}

// Clients that connect without end do not keep the listener busy for a whole turn.
TEST_F(ShmListenerTest, ATurnHandlesALimitedNumberOfArrivals) {
  ASSERT_TRUE(listener_);
  std::vector<ShmConnector> connectors;
  connectors.reserve(ShmListener::kArrivalsMax + 1);
  for (int n = 0; n < ShmListener::kArrivalsMax + 1; ++n)
    connectors.push_back(std::move(*Connect(listener_->TicketFor(Peer(std::uint64_t(n))))));
  EXPECT_EQ(Welcomed().size(), std::size_t{ShmListener::kArrivalsMax});
  EXPECT_EQ(Welcomed().size(), 1u);
}

TEST_F(ShmListenerTest, ChannelsBeyondTheLimitAreRefused) {
  ASSERT_TRUE(listener_);
  std::vector<ShmConnector> connectors;
  connectors.reserve(3);
  for (std::uint64_t n = 0; n < 3; ++n) connectors.push_back(std::move(*Connect(listener_->TicketFor(Peer(n)))));
  std::size_t welcomed = 0;
  listener_->Take(2, [&](Peer, ShmChannel) { ++welcomed; });
  EXPECT_EQ(welcomed, 2u);
  auto turned_away = connectors[2].Take();
  ASSERT_TRUE(turned_away);
  EXPECT_FALSE(*turned_away);
}

TEST_F(ShmListenerTest, TheOldestTicketsAreForgotten) {
  ASSERT_TRUE(listener_);
  const std::string oldest = listener_->TicketFor(Peer(0)), second = listener_->TicketFor(Peer(1));
  for (std::uint64_t n = 2; n <= limits::kShmTicketsMax; ++n) listener_->TicketFor(Peer(n));
  auto late = Connect(oldest), early = Connect(second);
  ASSERT_TRUE(late && early);
  EXPECT_EQ(Welcomed(), std::vector{Peer(1)});
}

TEST_F(ShmListenerTest, WithoutAListenerConnectFails) {
  EXPECT_FALSE(ShmConnector::Connect("tarn-that-nobody-has-opened", "ticket", client_wake_.get()));
}

}  // namespace
}  // namespace tarn::net
