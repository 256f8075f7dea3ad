// Shows which Host headers, tokens and token files an HTTP server accepts.
#include "net/http/access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tarn::net {
namespace {

TEST(HttpAccessTest, AddressesLocalhostAndOwnNamesAreAccepted) {
  const HttpAccess access({"Node7.example.com"});
  for (const char* host : {"127.0.0.1", "127.0.0.1:9090", "192.168.1.5:80", "[::1]", "[::1]:9090", "localhost",
                           "LocalHost:1", "node7.example.com", "NODE7.example.com:8080"})
    EXPECT_TRUE(access.AcceptsHost(host)) << host;
}

TEST(HttpAccessTest, OtherNamesAreRefused) {
  const HttpAccess access({"node7.example.com"});
  for (const char* host : {"",
                           ":80",
                           "evil.example",
                           "evil.example:9090",
                           "localhost.evil.example",
                           "localhost.",
                           "127.0.0.1.evil.example",
                           "localhost:",
                           "localhost:80:80",
                           "localhost:8x",
                           "localhost:123456",
                           "node7.example.com.evil.example",
                           "[::1",
                           "[::1]x",
                           "[::1]:",
                           "[localhost]",
                           "[]",
                           "user@localhost",
                           "localhost/",
                           "local host"})
    EXPECT_FALSE(access.AcceptsHost(host)) << host;
}

TEST(HttpAccessTest, WithoutATokenNoneIsRequired) {
  const HttpAccess access;
  EXPECT_TRUE(access.AcceptsAuthorization(""));
  EXPECT_TRUE(access.AcceptsAuthorization("Bearer whatever"));
}

TEST(HttpAccessTest, ATokenMustBeTheWholeToken) {
  const HttpAccess access({}, "0123456789abcdef");
  EXPECT_TRUE(access.AcceptsAuthorization("Bearer 0123456789abcdef"));
  EXPECT_TRUE(access.AcceptsAuthorization("bearer 0123456789abcdef"));
  for (const char* authorization :
       {"", "Bearer", "Bearer ", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer 0123456789abcde",
        "Bearer 0123456789abcdef0", "Bearer 0123456789abcdeF", "Bearer  0123456789abcdef", "Bearer 1123456789abcdef"})
    EXPECT_FALSE(access.AcceptsAuthorization(authorization)) << authorization;
}

class HttpTokenTest : public testing::Test {
 protected:
  ~HttpTokenTest() override { std::filesystem::remove(path_); }
  Expected<std::string> Read(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
    return ReadHttpToken(path_);
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("tarn-token-" + std::to_string(::getpid()))).string();
};

TEST_F(HttpTokenTest, ATokenIsOneLine) {
  EXPECT_EQ(*Read("0123456789abcdef"), "0123456789abcdef");
  EXPECT_EQ(*Read("  AZaz09-._~+/=AZaz\r\n\n"), "AZaz09-._~+/=AZaz");
  EXPECT_EQ(Read(std::string(1024, 'x'))->size(), 1024u);
}

TEST_F(HttpTokenTest, InvalidTokensAreRefusedAndNotShown) {
  for (const std::string& text : {std::string(), std::string("short"), std::string(15, 's'), std::string(1025, 's'),
                                  std::string("ssssssss ssssssss"), std::string("ssssssssssssssss\nssssssssssssssss"),
                                  std::string("ssssssssssssssss\xff")}) {
    const auto token = Read(text);
    ASSERT_FALSE(token) << text;
    EXPECT_EQ(token.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(token.error().message.find("sss"), std::string::npos) << token.error().message;
  }
}

TEST_F(HttpTokenTest, AFileThatOthersCanReadIsRefused) {
  const auto token = Read("0123456789abcdef", 0640);
  ASSERT_FALSE(token);
  EXPECT_NE(token.error().message.find("chmod 600"), std::string::npos) << token.error().message;
  std::filesystem::remove(path_);
  EXPECT_EQ(ReadHttpToken(path_).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tarn::net
