// Shows which endpoints are accepted, and which of them require keys, a private folder or the user's consent.
#include "net/zmq/address.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tarn::net {
namespace {

TEST(ZmqAddress, TcpNeedsKeysOrConsent) {
  LocalFolders folders;
  EXPECT_EQ(ZmqAddress("tcp://127.0.0.1:7701", true, &folders), "tcp://127.0.0.1:7701");
  EXPECT_EQ(ZmqAddress("tcp://127.0.0.1:*", true, &folders), "tcp://127.0.0.1:*");
  const auto refused = ZmqAddress("tcp://127.0.0.1:7701", false, &folders);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(refused.error().message.starts_with("tcp://127.0.0.1:7701: any user of the host can connect"));
}

TEST(ZmqAddress, PortsAndProtocolsAreChecked) {
  LocalFolders folders;
  EXPECT_TRUE(ZmqAddress("tcp://host:65535", true, &folders));
  for (const char* bad : {"tcp://host:65536", "tcp://host:99999", "tcp://host:", "tcp://host", "tcp://host:7x",
                          "host:7", "udp://host:7", ""}) {
    const auto refused = ZmqAddress(bad, true, &folders);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(refused.error().message, std::string(bad) + ": expected tcp://HOST:PORT with a port up to 65535");
  }
}

TEST(ZmqAddress, InprocNeedsNoKeys) {
  LocalFolders folders;
  EXPECT_EQ(ZmqAddress("inproc://here", false, &folders), "inproc://here");
}

TEST(ZmqAddress, UnixSocketsNeedAPrivateFolderUnlessOpen) {
  std::string folder = std::filesystem::temp_directory_path() / "tarn-address-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  LocalFolders folders;
  EXPECT_TRUE(ZmqAddress("ipc://" + folder + "/socket", false, &folders));
  ASSERT_EQ(chmod(folder.c_str(), 0750), 0);
  EXPECT_FALSE(ZmqAddress("ipc://" + folder + "/socket", false, &folders));
  EXPECT_TRUE(ZmqAddress("ipc://" + folder + "/socket", true, &folders));
  std::filesystem::remove_all(folder);
}

TEST(ZmqAddress, AFolderThatIsNotUtf8IsNotUsedForSockets) {
  std::string folder = std::filesystem::temp_directory_path() / "tarn-address-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string latin1 = folder + "/caf\xe9";
  ASSERT_EQ(mkdir(latin1.c_str(), 0700), 0);
  LocalFolders folders;
  const auto in_utf8 = folders.Make(folder, "shard-0"), elsewhere = folders.Make(latin1, "shard-0");
  ASSERT_TRUE(in_utf8 && elsewhere);
  EXPECT_NE(in_utf8->find(folder), std::string::npos);
  EXPECT_EQ(elsewhere->find(folder), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tarn::net
