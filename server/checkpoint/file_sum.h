// Size and checksum of a file as it lies on disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/error.h"
#include "core/message.h"

namespace tarn::server {

struct FileSum {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

// Reads the file to its end. `sync`: also makes its bytes durable, and reads past the page cache where the file
// system can. `progress` (empty: none) is told the bytes of each piece. kNotFound or kIo, naming the file.
Expected<FileSum> SumFile(const std::string& path, bool sync,
                          const std::function<void(std::uint64_t bytes)>& progress = {});

// Reads the file to its end and compares with what a manifest says of it: kCorrupt (also: the checkpoints beside this
// one that have it too, by a hard link), kNotFound or kIo, naming the file.
Status VerifyFile(const std::string& path, const CheckpointFile& file,
                  const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace tarn::server
