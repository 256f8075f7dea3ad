// The contents of a data file, in memory or mapped. Gzip is detected by its first bytes and decompressed once: a small
// file into memory, a larger one into an unnamed temporary file that is freed with this object.
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
  std::string cache_dir;  // for larger gzip files; empty: the system's temporary directory
  std::stop_token stop;   // a stop request ends decompression soon, with kCancelled
};

// Immutable after construction: any thread may read. An uncompressed file is mapped. If another process truncates it
// meanwhile, the missing bytes read as zeros and CheckWhole fails. So readers must call CheckWhole before they use the
// bytes they have read. (Reading missing bytes raises SIGBUS: the first mapping installs a handler that maps zeros in
// their place. It passes other SIGBUS signals to the previous handler.)
class FileBytes {
 public:
  // kNotFound, kIo, kMalformed (a folder, a pipe, a device, a broken gzip file, a file of another compression or of
  // Parquet), kCancelled. Does not wait for writers of a pipe. `expected`: what the path should be, such as "a libsvm
  // file, plain or gzip", for the message about a missing file.
  static Expected<FileBytes> Open(const std::string& path, std::string_view expected,
                                  const FileBytesOptions& options = {});
  static FileBytes FromText(std::string text);

  std::string_view bytes() const { return bytes_; }
  // kIo if the file is now shorter than when it was opened. Bytes appended since are not visible.
  Status CheckWhole() const;

  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

 private:
  FileBytes();
  Status Map(int file, const std::string& path);
  Status Inflate(int file, const std::string& path, const FileBytesOptions& options);

  std::string_view bytes_;
  std::unique_ptr<std::string> owned_;  // the text of bytes_, unless it is mapped
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;  // the mapping of bytes_; null: none
};

}  // namespace tarn::worker
