#include "scheduler/membership/addresses.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace tarn::scheduler {
namespace {

constexpr std::string_view kScheme = "http://";

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool IsHost(std::string_view host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string_view marks = bracketed ? ".:%" : "._-";
  if (bracketed) host = host.substr(1, host.size() - 2);
  return !host.empty() &&
         std::ranges::all_of(host, [&](char c) { return IsLetterOrDigit(c) || marks.find(c) != marks.npos; });
}

bool IsPort(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port != 0;
}

std::string_view NameOf(Role role) {
  switch (role) {
    case Role::kScheduler: return "scheduler";
    case Role::kShard: return "server";
    case Role::kWorker: return "worker";
  }
  return "";
}

}  // namespace

Status CheckHttpAddress(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (text.starts_with(kScheme) && colon >= kScheme.size() && colon != text.npos &&
      IsHost(text.substr(kScheme.size(), colon - kScheme.size())) && IsPort(text.substr(colon + 1)))
    return {};
  return Fail(ErrorCode::kInvalidArgument, fmt::format("HTTP address \"{}\": expected http://HOST:PORT", text));
}

void Addresses::Put(Role role, std::uint32_t rank, std::string http) {
  const auto it = http_.find({role, rank});
  if ((it == http_.end() ? std::string_view() : it->second) == http) return;
  ++revision_;
  if (http.empty())
    http_.erase(it);
  else
    http_.insert_or_assign({role, rank}, std::move(http));
}

bool Addresses::Write() {
  if (store_ == nullptr || written_ == revision_) return true;
  if (std::exchange(writing_, true)) return false;
  std::vector<ProcessAddress> list;
  list.reserve(http_.size());
  for (const auto& [process, http] : http_) list.push_back({NameOf(process.first), process.second, http});
  store_->WriteAddresses(revision_, list);
  return false;
}

void Addresses::OnWritten(const StoreWritten& written) {
  writing_ = false;
  written_ = written.number;
}

}  // namespace tarn::scheduler
