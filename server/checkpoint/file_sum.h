// Size and checksum of a file on disk. All functions block; any thread.
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

// Reads the whole file. `sync`: also makes its bytes durable, and bypasses the page cache if the file system supports
// it. Calls progress(bytes), if not empty, after each piece with the piece's size. kNotFound or kIo, naming the file.
Expected<FileSum> SumFile(const std::string& path, bool sync,
                          const std::function<void(std::uint64_t bytes)>& progress = {});

// Reads the whole file and compares its size and CRC-32C with those in `file`, from a manifest. kCorrupt, kNotFound or
// kIo, naming the file and, if its checksum is wrong, the checkpoints in the same folder that have the file too, as a
// hard link.
Status VerifyFile(const std::string& path, const CheckpointFile& file,
                  const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace tarn::server
