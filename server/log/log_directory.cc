#include "server/log/log_directory.h"

#include <fmt/format.h>

#include "server/log/log_format.h"

namespace tarn::server {
namespace {

// Whether a file of a log is of this run, or was torn before it said whose it is.
Expected<bool> MayRemove(FileOps* files, const std::string& path, bool mark, const LogIdentity& identity) {
  auto file = files->OpenToRead(path);
  if (!file) return std::unexpected(file.error());
  std::byte bytes[kSegmentHeaderBytes];
  const auto got = (*file)->Read(0, bytes);
  if (!got) return std::unexpected(got.error());
  const auto read = std::span(bytes).first(*got);
  if (mark) {
    const auto found = DecodeMark(read);
    return !found || found->identity == identity;
  }
  const auto header = DecodeSegmentHeader(read);
  if (header) return header->identity == identity;
  return header.error().code != ErrorCode::kUnsupported;
}

}  // namespace

Status ClearForNewLog(FileOps* files, const std::string& directory, const LogIdentity& identity) {
  const auto names = files->List(directory);
  if (!names) return std::unexpected(names.error());
  bool removed = false;
  for (const std::string& name : *names) {
    const bool mark = name == kMarkName;
    if (!mark && !SegmentNumber(name)) continue;
    const std::string path = directory + "/" + name;
    const auto ours = MayRemove(files, path, mark, identity);
    if (!ours) return std::unexpected(ours.error());
    if (!*ours)
      return Fail(ErrorCode::kAlreadyExists,
                  fmt::format("{}: the log of another run lies here: expected a folder without one", path));
    TARN_RETURN_IF_ERROR(files->Remove(path));
    removed = true;
  }
  return removed ? files->SyncDirectory(directory) : Status();
}

Status RemoveTorn(FileOps* files, const std::string& directory, const LogTail& tail) {
  for (const std::string& name : tail.torn) TARN_RETURN_IF_ERROR(files->Remove(directory + "/" + name));
  return tail.torn.empty() ? Status() : files->SyncDirectory(directory);
}

}  // namespace tarn::server
