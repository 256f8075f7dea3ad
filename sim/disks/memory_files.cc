#include "sim/disks/memory_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tarn::server {
namespace {

constexpr std::size_t kSector = 512;

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::unexpected<Error> NotFound(const std::string& path) {
  return Fail(ErrorCode::kNotFound, fmt::format("{}: cannot open: No such file or directory", path));
}

}  // namespace

class MemoryFile final : public LogFile {
 public:
  MemoryFile(MemoryDisk* disk, std::string path, std::shared_ptr<MemoryDisk::Inode> inode)
      : disk_(disk), path_(std::move(path)), inode_(std::move(inode)) {}

  Status Write(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) override {
    for (const auto& part : parts) {
      if (part.empty()) continue;
      Grow(offset + part.size());
      std::memcpy(inode_->bytes.data() + offset, part.data(), part.size());
      for (std::size_t s = offset / kSector; s * kSector < offset + part.size(); ++s) inode_->dirty.insert(s);
      offset += part.size();
    }
    return {};
  }
  Status Sync() override {
    if (disk_->fails_ && disk_->fails_()) {
      inode_->dirty.clear();
      return Fail(ErrorCode::kIo, fmt::format("{}: cannot sync: Input/output error", path_));
    }
    inode_->synced.resize(inode_->bytes.size());
    for (const std::size_t sector : inode_->dirty) {
      const std::size_t begin = sector * kSector, end = std::min(begin + kSector, inode_->bytes.size());
      if (begin < end) std::memcpy(inode_->synced.data() + begin, inode_->bytes.data() + begin, end - begin);
    }
    inode_->dirty.clear();
    return {};
  }
  Expected<std::uint64_t> Allocate(std::uint64_t bytes, std::uint64_t least) override {
    const std::uint64_t others = disk_->BytesUsed() - inode_->bytes.size();
    const std::uint64_t granted = others + bytes <= disk_->room_ ? bytes : least;
    if (others + granted > disk_->room_)
      return Fail(ErrorCode::kIo, fmt::format("{}: cannot reserve {} bytes: No space left on device", path_, granted));
    Grow(granted);
    return granted;
  }
  Status WriteZeros(std::uint64_t offset, std::uint64_t bytes) override {
    const std::vector<std::byte> zeros(bytes);
    const std::span<const std::byte> part[] = {zeros};
    TARN_RETURN_IF_ERROR(Write(offset, part));
    return Sync();
  }
  Status Truncate(std::uint64_t bytes) override {
    inode_->bytes.resize(bytes);
    return {};
  }
  Expected<std::size_t> Read(std::uint64_t offset, std::span<std::byte> out) override {
    const std::size_t size = inode_->bytes.size();
    const std::size_t bytes = offset >= size ? 0 : std::min<std::size_t>(out.size(), size - offset);
    if (bytes != 0) std::memcpy(out.data(), inode_->bytes.data() + offset, bytes);
    return bytes;
  }
  Expected<std::uint64_t> Size() override { return inode_->bytes.size(); }

 private:
  void Grow(std::uint64_t bytes) { inode_->bytes.resize(std::max<std::size_t>(inode_->bytes.size(), bytes)); }

  MemoryDisk* disk_;
  std::string path_;
  std::shared_ptr<MemoryDisk::Inode> inode_;
};

class MemoryLock final : public LogLock {
 public:
  MemoryLock(MemoryDisk* disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  ~MemoryLock() override { disk_->locked_.erase(path_); }

 private:
  MemoryDisk* disk_;
  std::string path_;
};

class MemoryFileOps final : public FileOps {
 public:
  explicit MemoryFileOps(MemoryDisk* disk) : disk_(disk) {}

  Expected<std::unique_ptr<LogFile>> Create(const std::string& path) override {
    if (disk_->files_.contains(path)) return Fail(ErrorCode::kIo, fmt::format("{}: cannot create: File exists", path));
    auto inode = disk_->files_[path] = std::make_shared<MemoryDisk::Inode>();
    return std::make_unique<MemoryFile>(disk_, path, inode);
  }
  Expected<std::unique_ptr<LogFile>> OpenToRead(const std::string& path) override { return OpenToWrite(path); }
  Expected<std::unique_ptr<LogFile>> OpenToWrite(const std::string& path) override {
    const auto it = disk_->files_.find(path);
    if (it == disk_->files_.end()) return NotFound(path);
    return std::make_unique<MemoryFile>(disk_, path, it->second);
  }
  Status Remove(const std::string& path) override {
    auto node = disk_->files_.extract(path);
    if (!node) return NotFound(path);
    if (node.mapped()->named) disk_->removed_[path] = node.mapped();
    return {};
  }
  // Until the directory is synced, a loss of power may leave `to` with its former file, if that name was durable.
  Status Rename(const std::string& from, const std::string& to) override {
    auto node = disk_->files_.extract(from);
    if (!node) return NotFound(from);
    const auto inode = node.mapped();
    if (inode->named) disk_->removed_[from] = inode;
    inode->named = false;
    const auto before = disk_->files_.find(to);
    if (before != disk_->files_.end()) inode->replaces = before->second->named ? before->second : nullptr;
    disk_->files_[to] = inode;
    return {};
  }
  Status MakeDirectory(const std::string&) override { return {}; }
  Expected<std::vector<std::string>> List(const std::string& path) override {
    std::vector<std::string> names;
    for (const auto& [name, inode] : disk_->files_)
      if (FolderOf(name) == path) names.push_back(name.substr(path.size() + 1));
    return names;
  }
  Status SyncDirectory(const std::string& path) override {
    for (auto& [name, inode] : disk_->files_)
      if (FolderOf(name) == path) {
        inode->named = true;
        inode->replaces = nullptr;
      }
    std::erase_if(disk_->removed_, [&](const auto& removed) { return FolderOf(removed.first) == path; });
    return {};
  }
  Expected<std::unique_ptr<LogLock>> Lock(const std::string& path) override {
    if (!disk_->locked_.insert(path).second)
      return Fail(ErrorCode::kUnavailable, fmt::format("{}: another process holds this log", path));
    return std::make_unique<MemoryLock>(disk_, path);
  }

 private:
  MemoryDisk* disk_;
};

void MemoryDisk::LosePower(const std::function<std::uint64_t(std::uint64_t)>& dice) {
  locked_.clear();
  for (auto& [path, inode] : files_)
    if (inode->replaces && dice(2) == 0) inode = inode->replaces;
  std::erase_if(files_,
                [&](const auto& file) { return !file.second->named && !file.second->replaces && dice(2) == 0; });
  for (auto& [path, inode] : removed_)
    if (!files_.contains(path) && dice(2) == 0) files_[path] = inode;
  removed_.clear();
  for (auto& [path, inode] : files_) {
    std::vector<std::byte> left = inode->synced;
    left.resize(dice(2) == 0 ? inode->synced.size() : inode->bytes.size());
    // All, none, or some of the sectors reached the disk.
    const std::uint64_t most = dice(3);
    for (std::size_t sector : inode->dirty) {
      const std::size_t begin = sector * kSector, end = std::min(begin + kSector, inode->bytes.size());
      if (most == 0 || (most == 1 && dice(2) == 0) || begin >= end) continue;
      if (left.size() < end) left.resize(end);
      std::copy(inode->bytes.begin() + std::ptrdiff_t(begin), inode->bytes.begin() + std::ptrdiff_t(end),
                left.begin() + std::ptrdiff_t(begin));
    }
    auto kept = std::make_shared<Inode>();
    kept->bytes = kept->synced = std::move(left);
    kept->named = true;
    inode = std::move(kept);
  }
}

std::uint64_t MemoryDisk::BytesUsed() const {
  std::uint64_t sum = 0;
  for (const auto& [path, inode] : files_) sum += inode->bytes.size();
  return sum;
}

MemoryDisk MemoryDisk::Copy() const {
  MemoryDisk copy;
  for (const auto& [path, inode] : files_) copy.files_[path] = std::make_shared<Inode>(*inode);
  for (const auto& [path, inode] : removed_) copy.removed_[path] = std::make_shared<Inode>(*inode);
  return copy;
}

std::vector<std::byte>* MemoryDisk::Find(const std::string& path) {
  const auto it = files_.find(path);
  return it == files_.end() ? nullptr : &it->second->bytes;
}

std::vector<std::string> MemoryDisk::Paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, inode] : files_) paths.push_back(path);
  return paths;
}

void MemoryDisk::Rename(const std::string& from, const std::string& to) {
  auto node = files_.extract(from);
  if (!node) return;
  node.key() = to;
  files_.insert(std::move(node));
}

std::unique_ptr<FileOps> MakeMemoryFileOps(MemoryDisk* disk) { return std::make_unique<MemoryFileOps>(disk); }

}  // namespace tarn::server
