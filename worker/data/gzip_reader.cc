#include "worker/data/gzip_reader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "core/file.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kInputBytes = std::size_t{256} << 10;
constexpr int kGzipOnly = 15 + 16;  // window bits of inflateInit2: the largest window, and a header of gzip

}  // namespace

GzipReader::GzipReader(int file, std::string path) : file_(file), path_(std::move(path)), input_(kInputBytes) {
  if (::inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
}

GzipReader::~GzipReader() { ::inflateEnd(&stream_); }

Expected<std::size_t> GzipReader::Read(std::span<char> out) {
  stream_.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream_.avail_out = static_cast<unsigned>(out.size());
  while (stream_.avail_out > 0) {
    TARN_RETURN_IF_ERROR(Fill());
    if (!in_member_) {
      const Expected<bool> begun = BeginMember();
      if (!begun) return std::unexpected(begun.error());
      if (!*begun && ended_) break;
      if (!*begun) continue;
    }
    if (stream_.avail_in == 0) return std::unexpected(Malformed("unexpected end of file"));
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      return std::unexpected(Malformed(stream_.msg != nullptr ? stream_.msg : "damaged data"));
    in_member_ = code != Z_STREAM_END;
  }
  return out.size() - stream_.avail_out;
}

// Reads more of the file if all that was read is used.
Status GzipReader::Fill() {
  while (stream_.avail_in == 0 && !ended_) {
    const ssize_t got = ::pread(file_, input_.data(), input_.size(), static_cast<off_t>(read_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(SystemError(path_, "read", errno));
    ended_ = got == 0;
    read_ += static_cast<std::uint64_t>(got);
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<unsigned>(got);
  }
  return {};
}

// Skips zeros, with which some programs pad a file. False: nothing else has been read.
Expected<bool> GzipReader::BeginMember() {
  for (; stream_.avail_in > 0 && *stream_.next_in == 0; ++stream_.next_in, --stream_.avail_in) padded_ = true;
  if (stream_.avail_in == 0) return false;
  if (padded_) return std::unexpected(Malformed("bytes after the zeros at its end"));
  ::inflateReset(&stream_);
  in_member_ = true;
  return true;
}

Error GzipReader::Malformed(const char* reason) const {
  return {ErrorCode::kMalformed, fmt::format("data file {} is not a complete gzip file: {} at byte {}", path_, reason,
                                             read_ - stream_.avail_in)};
}

}  // namespace tarn::worker
