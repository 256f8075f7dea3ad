// Files in memory with simulated losses of power. Unsynced sectors are then lost or kept at random, and so are unsynced
// names: the worst case of a disk that respects syncs. A sync may also fail as on Linux: the written data counts as
// clean, so later syncs succeed and reads return the data, but it is lost with the power ("failed, then clean"). For
// tests and simulated fleets. Not thread-safe.
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
  // Simulates a loss of power. dice(n): a random number below n.
  void LosePower(const std::function<std::uint64_t(std::uint64_t)>& dice);
  // `fails` is called at each sync of a file. True: the sync fails, and the data counts as clean but is not on the
  // disk.
  void FailSyncs(std::function<bool()> fails) { fails_ = std::move(fails); }
  // Sets the total bytes that files may reserve.
  void SetRoom(std::uint64_t bytes) { room_ = bytes; }
  std::uint64_t BytesUsed() const;
  // Another disk with the same files, without locks, without a limit, and with syncs that succeed.
  MemoryDisk Copy() const;
  // Simulates the end of the process: releases its locks, and loses nothing.
  void EndProcess() { locked_.clear(); }

  // The current bytes of a file, for tests that damage them; null if it does not exist.
  std::vector<std::byte>* Find(const std::string& path);
  std::vector<std::string> Paths() const;
  void Remove(const std::string& path) { files_.erase(path); }
  void Rename(const std::string& from, const std::string& to);

 private:
  friend class MemoryFileOps;
  friend class MemoryFile;
  friend class MemoryLock;
  struct Inode {
    std::vector<std::byte> bytes;     // as seen by the process
    std::vector<std::byte> synced;    // as stored on the disk
    std::set<std::size_t> dirty;      // sectors written since the last sync, successful or not
    bool named = false;               // the name is durable
    std::shared_ptr<Inode> replaces;  // the durable file of the same name, while the own name is not durable
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
