// Shows that Unix sockets of a user are created in private folders, refused in others, and reached at paths of any
// length.
#include "net/local_endpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/net/zmq/transport_fixture.h"

namespace tarn::net {
namespace {

class LocalEndpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = std::filesystem::temp_directory_path() / "tarn-test-XXXXXX";
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    run_ = made;
  }
  void TearDown() override { std::filesystem::remove_all(run_); }

  static ZmqTransportOptions Quick() { return {.linger_ms = 0, .shm = false}; }

  std::size_t Files(const std::string& path) const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path)) ++count;
    return count;
  }

  std::string run_;
};

TEST_F(LocalEndpointTest, TransfersMessagesAndLeavesNoFile) {
  std::string endpoint;
  {
    ZmqContext server_side, client_side;
    endpoint = server_side.folders().Make(run_, "scheduler").value();
    EXPECT_EQ(endpoint, "ipc://" + run_ + "/sockets/scheduler");
    struct stat info{};
    ASSERT_EQ(stat((run_ + "/sockets").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    ZmqTransport server(&server_side, Quick()), client(&client_side, Quick());
    EXPECT_EQ(server.Bind(endpoint).value(), endpoint);
    ASSERT_TRUE(client.Connect(kSchedulerPeer, endpoint));
    client.Send(kSchedulerPeer, NumberedTick(5));
    std::vector<Received> got;
    for (int i = 0; i < 1000 && got.empty(); ++i) {
      client.Receive(&got, 0, 0);
      server.Receive(&got, 1, 5'000);
    }
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(TickOf(got[0]), 5u);
    EXPECT_EQ(Files(run_ + "/sockets"), 1u);
  }
  EXPECT_EQ(Files(run_ + "/sockets"), 0u);
}

// The address of a Unix socket can have at most 107 bytes.
TEST_F(LocalEndpointTest, APathMayBeLong) {
  const std::string deep = run_ + "/" + std::string(120, 'x');
  std::filesystem::create_directories(deep);
  ZmqContext context;
  const std::string endpoint = context.folders().Make(deep, "scheduler").value();
  EXPECT_EQ(endpoint, "ipc://" + deep + "/sockets/scheduler");
  ZmqTransport server(&context, Quick()), client(&context, Quick());
  ASSERT_TRUE(server.Bind(endpoint));
  ASSERT_TRUE(client.Connect(kSchedulerPeer, endpoint));
  EXPECT_TRUE(std::filesystem::is_socket(deep + "/sockets/scheduler"));
}

// A temporary folder is used if the path is too long for a message, or if the run has no folder.
TEST_F(LocalEndpointTest, IfTheFoldersPathIsTooLongATemporaryOneIsUsed) {
  std::string deeper = run_;
  while (deeper.size() < 400) deeper += "/" + std::string(90, 'y');
  std::filesystem::create_directories(deeper);
  std::string folder;
  for (const std::string& run : {std::string(), deeper}) {
    ZmqContext context;
    const std::string endpoint = context.folders().Make(run, "shard-0").value();
    folder = endpoint.substr(6, endpoint.rfind('/') - 6);
    struct stat info{};
    ASSERT_EQ(stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    ZmqTransport server(&context, Quick());
    EXPECT_TRUE(server.Bind(endpoint));
  }
  EXPECT_FALSE(std::filesystem::exists(folder)) << "it goes with the process";
}

TEST_F(LocalEndpointTest, AFolderThatOthersMayOpenIsRefused) {
  const std::string endpoint = "ipc://" + run_ + "/open/scheduler";
  std::filesystem::create_directory(run_ + "/open");
  chmod((run_ + "/open").c_str(), 0750);
  ZmqContext context;
  ZmqTransport transport(&context, Quick());
  const auto bound = transport.Bind(endpoint);
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().message, fmt::format("{0}/open: this folder of sockets has mode 0750, expected 0700 so that "
                                               "other users cannot connect: chmod 700 {0}/open",
                                               run_));
  EXPECT_FALSE(transport.Connect(kSchedulerPeer, endpoint));
  auto options = Quick();
  options.insecure = true;
  EXPECT_TRUE(ZmqTransport(&context, options).Bind(endpoint));
  EXPECT_FALSE(transport.Connect(kSchedulerPeer, "ipc://" + run_ + "/absent/scheduler"));
}

TEST_F(LocalEndpointTest, AFolderOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  std::filesystem::create_directory(run_ + "/theirs");
  chmod((run_ + "/theirs").c_str(), 0700);
  ASSERT_EQ(chown((run_ + "/theirs").c_str(), 65534, 65534), 0);
  ZmqContext context;
  const auto reached = context.folders().Reach("ipc://" + run_ + "/theirs/scheduler", true);
  ASSERT_FALSE(reached);
  EXPECT_NE(reached.error().message.find("belongs to another user (65534), expected this user (0)"), std::string::npos)
      << reached.error().message;
}

TEST_F(LocalEndpointTest, StaleSocketsAreRemovedAndLiveOnesKept) {
  ZmqContext context;
  ZmqTransport server(&context, Quick());
  ASSERT_TRUE(server.Bind(context.folders().Make(run_, "shard-0").value()));
  {
    ZmqContext other;
    ZmqTransport killed(&other, Quick());
    ASSERT_TRUE(killed.Bind(other.folders().Make(run_, "shard-1").value()));
    std::filesystem::create_hard_link(run_ + "/sockets/shard-1", run_ + "/sockets/stale");
  }
  EXPECT_EQ(Files(run_ + "/sockets"), 2u);
  RemoveSockets(run_, true);
  EXPECT_EQ(Files(run_ + "/sockets"), 1u);
  EXPECT_TRUE(std::filesystem::exists(run_ + "/sockets/shard-0"));
  RemoveSockets(run_, false);
  EXPECT_FALSE(std::filesystem::exists(run_ + "/sockets"));
}

// ZeroMQ alone would remove it, and connections would reach the second one.
TEST_F(LocalEndpointTest, ASocketInUseIsNotReplaced) {
  ZmqContext context, other;
  ZmqTransport first(&context, Quick()), second(&other, Quick());
  const std::string endpoint = context.folders().Make(run_, "shard-0").value();
  ASSERT_TRUE(first.Bind(endpoint));
  const auto bound = second.Bind(endpoint);
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(bound.error().message, "cannot bind " + endpoint + ": another process listens there");
  EXPECT_EQ(FindListener(endpoint.substr(6)), Listener::kThere);
}

TEST_F(LocalEndpointTest, TheFolderOfARunIsAnAddressOfItsScheduler) {
  EXPECT_EQ(SchedulerEndpoint("tcp://host:1", 0).value(), "tcp://host:1");
  EXPECT_EQ(SchedulerEndpoint("127.0.0.1:7700", 60).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(SchedulerEndpoint("", 60).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(SchedulerEndpoint(run_, 0).error().code, ErrorCode::kTimeout);
  std::thread later([&] { std::ofstream(AddressFile(run_)) << "ipc:///a/b\n"; });
  EXPECT_EQ(SchedulerEndpoint(run_, 60).value(), "ipc:///a/b");
  later.join();
}

TEST_F(LocalEndpointTest, TheWaitForASchedulerCanBeStopped) {
  int asked = 0;
  const auto stopped = SchedulerEndpoint(run_, 600, [&asked] { return ++asked == 3; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(stopped.error().message, run_ + ": terminated by a signal while no scheduler was running here");
  EXPECT_EQ(asked, 3);
  std::ofstream(AddressFile(run_)) << "ipc:///a/b\n";
  EXPECT_EQ(SchedulerEndpoint(run_, 600, [] { return true; }).value(), "ipc:///a/b");
}

}  // namespace
}  // namespace tarn::net
