#include "net/http/access.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "core/file.h"
#include "net/http/endpoint.h"

namespace tarn::net {
namespace {

constexpr std::size_t kTokenBytesMin = 16, kTokenBytesMax = 1024;
constexpr std::string_view kScheme = "bearer ";

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool IsPort(std::string_view text) {
  return !text.empty() && text.size() <= 5 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// The host of "HOST" or "HOST:PORT", without brackets, in lower case. Empty if malformed.
std::string HostName(std::string_view host) {
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == std::string_view::npos) return {};
    const std::string_view rest = host.substr(end + 1);
    if (!rest.empty() && !(rest.front() == ':' && IsPort(rest.substr(1)))) return {};
    const std::string address = Lower(host.substr(1, end - 1));
    return address.find(':') != std::string::npos ? address : std::string();
  }
  const std::size_t colon = host.find(':');
  if (colon != std::string_view::npos && !IsPort(host.substr(colon + 1))) return {};
  return Lower(host.substr(0, colon));
}

bool IsTokenCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-._~+/=").find(c) != std::string_view::npos;
}

}  // namespace

HttpAccess::HttpAccess(std::vector<std::string> names, std::string token) : token_(std::move(token)) {
  names_.emplace_back("localhost");
  for (const std::string& name : names) names_.push_back(Lower(name));
}

bool HttpAccess::AcceptsHost(std::string_view host) const {
  const std::string name = HostName(host);
  return std::ranges::find(names_, name) != names_.end() || IsIpAddress(name);
}

bool HttpAccess::AcceptsAuthorization(std::string_view authorization) const {
  if (token_.empty()) return true;
  if (authorization.size() != kScheme.size() + token_.size()) return false;
  if (Lower(authorization.substr(0, kScheme.size())) != kScheme) return false;
  unsigned differs = 0;
  for (std::size_t i = 0; i < token_.size(); ++i)
    differs |= static_cast<unsigned char>(authorization[kScheme.size() + i]) ^ static_cast<unsigned char>(token_[i]);
  return differs == 0;
}

Expected<std::string> ReadHttpToken(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return std::unexpected(SystemError(path, "open", errno));
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("token file {0}: other users can access it, expected mode 0600: chmod 600 {0}", path));
  const auto text = ReadFile(path, 2 * kTokenBytesMax);
  if (!text) return std::unexpected(text.error());
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text->find_first_not_of(kBlank), last = text->find_last_not_of(kBlank);
  const std::string token = first == std::string::npos ? std::string() : text->substr(first, last + 1 - first);
  if (token.size() < kTokenBytesMin || token.size() > kTokenBytesMax || !std::ranges::all_of(token, IsTokenCharacter))
    return Fail(ErrorCode::kInvalidArgument,  // does not quote the token, which is secret
                fmt::format("token file {}: expected one token of {} to {} letters, digits and -._~+/= characters",
                            path, kTokenBytesMin, kTokenBytesMax));
  return token;
}

}  // namespace tarn::net
