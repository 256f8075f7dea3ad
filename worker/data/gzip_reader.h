// Decompresses a gzip file: all of its members.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn::worker {

// zlib's gzread ends without an error at anything but a header after a member, and thereby hides rows. One thread.
class GzipReader {
 public:
  // Reads the open file from its beginning, whatever its offset. `path` is for errors.
  GzipReader(int file, std::string path);
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;
  ~GzipReader();

  // The next decompressed bytes; fewer than out.size() only at the end. kIo; kMalformed: the file is damaged, ends
  // within a member, or has other bytes than zeros after the last one.
  Expected<std::size_t> Read(std::span<char> out);

 private:
  Status Fill();
  Expected<bool> BeginMember();
  Error Malformed(const char* reason) const;

  int file_;
  std::string path_;
  z_stream stream_{};
  std::vector<unsigned char> input_;
  std::uint64_t read_ = 0;  // bytes of the file
  bool ended_ = false;      // all of it is read
  bool in_member_ = false;
  bool padded_ = false;  // zeros were found after a member
};

}  // namespace tarn::worker
