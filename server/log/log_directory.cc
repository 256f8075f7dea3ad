#include "server/log/log_directory.h"

#include <fmt/format.h>

#include <vector>

#include "server/log/log_format.h"

namespace tarn::server {
namespace {

Expected<LogIdentity> OwnerOf(bool mark, std::span<const std::byte> header) {
  if (mark) {
    const auto found = DecodeMark(header);
    if (!found) return std::unexpected(found.error());
    return found->identity;
  }
  const auto found = DecodeSegmentHeader(header);
  if (!found) return std::unexpected(found.error());
  return found->identity;
}

// A file may be removed if it belongs to this run, or is torn and has no valid header.
Status CheckMayRemove(FileOps* files, const std::string& path, bool mark, const LogIdentity& identity) {
  auto file = files->OpenToRead(path);
  if (!file) return std::unexpected(file.error());
  for (std::uint64_t offset = 0; offset <= (mark ? kLogPage : 0); offset += kLogPage) {
    std::byte bytes[kSegmentHeaderBytes];
    const auto got = (*file)->Read(offset, bytes);
    if (!got) return std::unexpected(got.error());
    const auto owner = OwnerOf(mark, std::span(bytes).first(*got));
    if (owner ? *owner == identity : owner.error().code != ErrorCode::kUnsupported) continue;
    return Fail(ErrorCode::kAlreadyExists,
                fmt::format("{}: the folder contains the log of another run, expected a folder without a log{}", path,
                            owner ? "" : fmt::format(" ({})", owner.error().message)));
  }
  return {};
}

}  // namespace

Status ClearForNewLog(FileOps* files, const std::string& directory, const LogIdentity& identity) {
  const auto names = files->List(directory);
  if (!names) return std::unexpected(names.error());
  std::vector<std::string> old;
  for (const std::string& name : *names)
    if (name == kMarkName || name == kRewrittenName || SegmentNumber(name)) old.push_back(directory + "/" + name);
  // Checks all files before removing any, so that an error changes nothing.
  for (const std::string& path : old)
    TARN_RETURN_IF_ERROR(CheckMayRemove(files, path, path == directory + "/" + kMarkName, identity));
  for (const std::string& path : old) TARN_RETURN_IF_ERROR(files->Remove(path));
  return old.empty() ? Status() : files->SyncDirectory(directory);
}

Status RemoveTorn(FileOps* files, const std::string& directory, const LogTail& tail) {
  for (const std::string& name : tail.torn) TARN_RETURN_IF_ERROR(files->Remove(directory + "/" + name));
  return tail.torn.empty() ? Status() : files->SyncDirectory(directory);
}

}  // namespace tarn::server
