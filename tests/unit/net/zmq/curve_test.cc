// Shows that with keys only a fleet's nodes can connect to each other, but no program without keys or with other keys;
// and that an invalid key file is refused.
#include "net/zmq/curve.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "core/file.h"
#include "core/log.h"
#include "net/zmq/transport.h"

namespace tarn::net {
namespace {

ZmqTransportOptions Quick() { return {.linger_ms = 0}; }

Message NumberedTick(std::uint64_t n) {
  Message message;
  message.body = Tick{.clock = Clock(n)};
  return message;
}

// Whether a message of `client` reaches `server` within `tries` times 5 ms.
bool Reaches(ZmqTransport* client, ZmqTransport* server, int tries) {
  client->Send(kSchedulerPeer, NumberedTick(1));
  std::vector<Received> got;
  for (int i = 0; i < tries && got.empty(); ++i) {
    client->Receive(&got, 0, 0);
    server->Receive(&got, 1, 5'000);
  }
  return !got.empty();
}

TEST(Curve, OnlyNodesWithTheKeysConnect) {
  const CurveKeys keys = *MakeCurveKeys();
  ZmqContext fleet;
  const Status secured = fleet.Secure(keys);
  ASSERT_TRUE(secured) << ToString(secured.error());
  ZmqTransport server(&fleet, Quick());
  const std::string endpoint = *server.Bind("tcp://127.0.0.1:*");

  ZmqContext plain;
  ZmqTransport stranger(&plain, {.insecure = true, .linger_ms = 0});
  ASSERT_TRUE(stranger.Connect(kSchedulerPeer, endpoint));
  EXPECT_FALSE(Reaches(&stranger, &server, 60));
  EXPECT_GT(server.counters().refused_handshakes, 0u);

  ZmqContext others;
  ASSERT_TRUE(others.Secure(*MakeCurveKeys()));
  ZmqTransport other(&others, Quick());
  ASSERT_TRUE(other.Connect(kSchedulerPeer, endpoint));
  EXPECT_FALSE(Reaches(&other, &server, 60));

  ZmqContext friends;
  ASSERT_TRUE(friends.Secure(keys));
  ZmqTransport client(&friends, Quick());
  ASSERT_TRUE(client.Connect(kSchedulerPeer, endpoint));
  EXPECT_TRUE(Reaches(&client, &server, 1000));
  EXPECT_EQ(server.counters().accepted_peers, 1u);
}

TEST(Curve, MayLeaveTheMachine) {
  ZmqContext context;
  ASSERT_TRUE(context.Secure(*MakeCurveKeys()));
  EXPECT_TRUE(ZmqTransport(&context, Quick()).Bind("tcp://0.0.0.0:*"));
}

TEST(Curve, TheLogHasTheErrorThatEndsTheCheckOfKeys) {
  const std::string path = std::filesystem::temp_directory_path() / ("tarn-curve-log-" + std::to_string(getpid()));
  ASSERT_TRUE(InitLog({.role = "test", .path = path}));
  {
    ZmqContext context;
    ASSERT_TRUE(context.Secure(*MakeCurveKeys()));
    context.raw()->shutdown();  // ends the poll with an error
  }
  FlushLog();
  const std::string text = ReadFile(path, 1 << 20).value_or("");
  std::filesystem::remove(path);
  ASSERT_TRUE(InitLog({.role = "test", .level = LogLevel::kError}));
  EXPECT_NE(text.find("the check of keys has ended: cannot poll: Context was terminated; no further connection"),
            std::string::npos)
      << text;
}

class KeyFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }
  void Write(const std::string& text) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), 0600);
  }
  std::string LoadError() const {
    const auto keys = LoadCurveKeys(path_);
    return keys ? "" : keys.error().message;
  }
  const std::string path_ = std::filesystem::temp_directory_path() / ("tarn-keys-test-" + std::to_string(getpid()));
};

TEST_F(KeyFile, IsReadBackAndNeverOverwritten) {
  const CurveKeys keys = *MakeCurveKeys();
  ASSERT_TRUE(SaveCurveKeys(keys, path_));
  const auto back = LoadCurveKeys(path_);
  ASSERT_TRUE(back) << ToString(back.error());
  EXPECT_EQ(back->public_key, keys.public_key);
  EXPECT_EQ(back->secret_key, keys.secret_key);
  EXPECT_EQ(SaveCurveKeys(keys, path_).error().code, ErrorCode::kAlreadyExists);
}

TEST_F(KeyFile, IsRemovedIfItCannotBeWritten) {
  const CurveKeys keys = *MakeCurveKeys();
  // A limit on the size of files simulates a full disk.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status saved = SaveCurveKeys(keys, path_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, ErrorCode::kIo);
  EXPECT_EQ(saved.error().message, "cannot write key file " + path_ + ": File too large");
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(SaveCurveKeys(keys, path_));
}

TEST_F(KeyFile, IsRefusedIfInvalid) {
  const CurveKeys keys = *MakeCurveKeys();
  const CurveKeys others = *MakeCurveKeys();
  EXPECT_EQ(LoadCurveKeys(path_).error().code, ErrorCode::kNotFound);
  Write("public " + keys.public_key + "\nsecret " + keys.secret_key + "\n");
  EXPECT_EQ(LoadError(), "");
  chmod(path_.c_str(), 0644);
  EXPECT_EQ(LoadError(), "key file " + path_ + ": others may read it; chmod 600 " + path_);
  Write("public " + keys.public_key + "\nsecret " + others.secret_key + "\n");
  EXPECT_EQ(LoadError(), "key file " + path_ + ": expected a public key and its secret key");
  Write("public " + keys.public_key + "\n");
  EXPECT_NE(LoadError(), "");
  Write("secret short\n");
  EXPECT_EQ(LoadError(), path_ + ":1: expected 'public' or 'secret' and a key of 40 characters");
  Write("nonsense\n");
  EXPECT_NE(LoadError(), "");
}

TEST_F(KeyFile, IsRefusedIfItCannotBeRead) {
  Write("");
  const auto below_file = LoadCurveKeys(path_ + "/keys");
  ASSERT_FALSE(below_file);
  EXPECT_EQ(below_file.error().code, ErrorCode::kIo);
  EXPECT_EQ(below_file.error().message, "key file " + path_ + "/keys: cannot open: Not a directory");
  if (geteuid() != 0) {  // root may read any file
    chmod(path_.c_str(), 0);
    EXPECT_EQ(LoadError(), "key file " + path_ + ": cannot open: Permission denied");
  }
  std::filesystem::remove(path_);
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  const auto folder = LoadCurveKeys(path_);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
  EXPECT_EQ(folder.error().message, "key file " + path_ + ": cannot read: Is a directory");
}

TEST_F(KeyFile, HasALimitedSize) {
  const CurveKeys keys = *MakeCurveKeys();
  const std::string lines = "public " + keys.public_key + "\nsecret " + keys.secret_key + "\n";
  Write(lines + std::string(4096 - lines.size(), '#'));
  EXPECT_EQ(LoadError(), "");
  Write(lines + std::string(4097 - lines.size(), '#'));
  EXPECT_EQ(LoadError(), "key file " + path_ + ": more than 4096 bytes");
}

}  // namespace
}  // namespace tarn::net
