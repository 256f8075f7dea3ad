// The bytes of a data file, whole, in memory or mapped. Gzip is told by its first bytes and inflated once: into
// memory while it is small, beyond that into a cache file that has no name any more and goes with this object.
#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn::worker {

struct FileBytesOptions {
  std::size_t inflated_ram_bytes_max = std::size_t{1} << 30;
  std::string cache_dir;  // for gzip beyond that; empty: the system's folder for temporary files
  std::stop_token stop;   // inflating ends soon after it is asked to, with kCancelled
};

// Immutable once made: any thread may read. A plain file is mapped. Where another process cuts it short meanwhile, the
// bytes that are gone read as zeros and CheckWhole fails: whoever reads calls it before it believes what it has read.
// (Reading them would be a SIGBUS: the first mapping installs a handler, which maps zeros in their place. A SIGBUS of
// anything else goes to the handler before it.)
class FileBytes {
 public:
  // kNotFound, kIo, kMalformed (a folder, a pipe, a device, a broken gzip), kCancelled. Never waits for a writer.
  // `expected` ends the message of a missing file: what should be there, such as "a libsvm file, plain or gzip".
  static Expected<FileBytes> Open(const std::string& path, std::string_view expected,
                                  const FileBytesOptions& options = {});
  static FileBytes FromText(std::string text);

  std::string_view bytes() const { return bytes_; }
  // kIo once the file has fewer bytes than it was opened with. One that grows stays as it was opened.
  Status CheckWhole() const;

  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

 private:
  FileBytes();
  Status Map(int file, const std::string& path);
  Status Inflate(int file, const std::string& path, const FileBytesOptions& options);

  std::string_view bytes_;
  std::unique_ptr<std::string> owned_;  // or
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace tarn::worker
