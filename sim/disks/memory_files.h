// Files in memory that lose their power: what was not synced is then forgotten, kept or torn, sector by sector, as the
// dice fall; names that were not synced come and go. The worst that a disk may do that keeps what it was told to sync.
// A sync may also fail as on Linux: what was written counts as clean from then on, so that later syncs succeed and
// reads return it, and it is gone with the power ("failed, then clean").
// For tests and simulated fleets. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/log/file_ops.h"

namespace tarn::server {

class MemoryDisk {
 public:
  // dice(n): a number below n.
  void LosePower(const std::function<std::uint64_t(std::uint64_t)>& dice);
  // Asked at each sync of a file: whether it fails, and what was written counts as clean and is not on the disk.
  void FailSyncs(std::function<bool()> fails) { fails_ = std::move(fails); }
  // Files may be reserved up to so many bytes in all.
  void SetRoom(std::uint64_t bytes) { room_ = bytes; }
  std::uint64_t BytesUsed() const;
  // Another disk with the same files, whose syncs succeed.
  MemoryDisk Copy() const;
  // Nothing is lost, as when only the process ends; its locks go.
  void EndProcess() { locked_.clear(); }

  // The bytes of a file as they are now, for tests that damage them; null if there is none.
  std::vector<std::byte>* Find(const std::string& path);
  std::vector<std::string> Paths() const;
  void Remove(const std::string& path) { files_.erase(path); }
  void Rename(const std::string& from, const std::string& to);

 private:
  friend class MemoryFileOps;
  friend class MemoryFile;
  friend class MemoryLock;
  struct Inode {
    std::vector<std::byte> bytes;     // as the process sees them
    std::vector<std::byte> synced;    // as they are on the disk
    std::set<std::size_t> dirty;      // sectors written since the last sync, whether it failed or not
    bool named = false;               // the name is durable
    std::shared_ptr<Inode> replaces;  // whose durable name it has, while its own is not durable
  };
  std::map<std::string, std::shared_ptr<Inode>> files_;
  std::map<std::string, std::shared_ptr<Inode>> removed_;  // names whose removal is not durable
  std::set<std::string> locked_;
  std::uint64_t room_ = UINT64_MAX;
  std::function<bool()> fails_;
};

// `disk` outlives it.
std::unique_ptr<FileOps> MakeMemoryFileOps(MemoryDisk* disk);

}  // namespace tarn::server
