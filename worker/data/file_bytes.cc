#include "worker/data/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"

namespace tarn::worker {
namespace {

namespace fs = std::filesystem;

// A file descriptor that closes itself.
struct File {
  int number = -1;
  explicit File(int n) : number(n) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (number >= 0) ::close(number);
  }
};

struct GzipCloser {
  void operator()(gzFile file) const { ::gzclose_r(file); }
};
using GzipFile = std::unique_ptr<gzFile_s, GzipCloser>;

Error MissingFile(const std::string& path, std::string_view expected) {
  std::string message = fmt::format("data file {} does not exist: expected {}", path, expected);
  std::error_code ignored;
  const std::string other = path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path + ".gz";
  if (fs::exists(other, ignored)) message += fmt::format("; there is {}", other);
  return {ErrorCode::kNotFound, message};
}

Status WriteAll(int file, std::string_view bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return std::unexpected(SystemError(what, "write the inflated cache", errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// A file without a name in `dir`.
Expected<std::unique_ptr<File>> MakeCacheFile(const std::string& dir) {
  std::error_code failed;
  std::string name = dir.empty() ? fs::temp_directory_path(failed).string() : dir;
  if (failed) name = "/tmp";
  name += "/tarn-inflated-XXXXXX";
  auto file = std::make_unique<File>(::mkostemp(name.data(), O_CLOEXEC));
  if (file->number < 0) return std::unexpected(SystemError(name, "create a cache file", errno));
  ::unlink(name.c_str());
  return file;
}

// How files of some kinds begin; no data file of ours begins like the others.
struct Kind {
  std::string_view magic, name;
};
constexpr std::string_view kGzip = "gzip";
constexpr Kind kKinds[] = {{"\x1F\x8B", kGzip},   {"\x28\xB5\x2F\xFD", "zstd"}, {"BZh", "bzip2"},
                           {"\xFD\x37zXZ", "xz"}, {"PK\x03\x04", "zip"},        {"PAR1", "Parquet"}};

// The name of the file's kind; empty if it has none of these.
std::string_view KindOf(int file) {
  char head[8] = {};
  const ssize_t got = ::pread(file, head, sizeof(head), 0);
  const std::string_view begin(head, got > 0 ? static_cast<std::size_t>(got) : 0);
  for (const Kind& kind : kKinds)
    if (begin.starts_with(kind.magic)) return kind.name;
  return {};
}

}  // namespace

Expected<FileBytes> FileBytes::Open(const std::string& path, std::string_view expected,
                                    const FileBytesOptions& options) {
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::unexpected(MissingFile(path, expected));
    return std::unexpected(SystemError(path, "open the data file", errno));
  }
  struct stat status{};
  if (::fstat(file.number, &status) != 0) return std::unexpected(SystemError(path, "stat the data file", errno));
  if (!S_ISREG(status.st_mode))
    return Fail(ErrorCode::kMalformed, fmt::format("data file {} is not a regular file: expected {}", path, expected));
  const std::string_view kind = KindOf(file.number);
  if (!kind.empty() && kind != kGzip)
    return Fail(ErrorCode::kMalformed, fmt::format("data file {} is a {} file: expected {}", path, kind, expected));
  FileBytes result;
  TARN_RETURN_IF_ERROR(kind == kGzip ? result.Inflate(path, options) : result.Map(file.number, path));
  return result;
}

FileBytes FileBytes::FromText(std::string text) {
  FileBytes result;
  result.owned_ = std::make_unique<std::string>(std::move(text));
  result.bytes_ = *result.owned_;
  return result;
}

Status FileBytes::Map(int file, const std::string& path) {
  struct stat status{};
  if (::fstat(file, &status) != 0) return std::unexpected(SystemError(path, "stat", errno));
  if (status.st_size == 0) return {};
  const auto size = static_cast<std::size_t>(status.st_size);
  void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (mapping == MAP_FAILED) return std::unexpected(SystemError(path, "map", errno));
  mapping_ = mapping;
  mapping_bytes_ = size;
  bytes_ = {static_cast<const char*>(mapping), size};
  return {};
}

Status FileBytes::Inflate(const std::string& path, const FileBytesOptions& options) {
  constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  GzipFile gzip(::gzopen(path.c_str(), "rbe"));
  if (!gzip) return std::unexpected(SystemError(path, "open the gzip file", errno));
  ::gzbuffer(gzip.get(), 256 << 10);
  auto text = std::make_unique<std::string>();
  std::unique_ptr<File> cache;
  std::string chunk(kChunkBytes, '\0');
  for (;;) {
    const int got = ::gzread(gzip.get(), chunk.data(), static_cast<unsigned>(chunk.size()));
    int code = Z_OK;
    const char* reason = ::gzerror(gzip.get(), &code);
    // A file that ends within a member reads as an end with Z_BUF_ERROR.
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
      return Fail(code == Z_ERRNO ? ErrorCode::kIo : ErrorCode::kMalformed,
                  fmt::format("data file {} is not whole gzip: {}", path, reason));
    if (got == 0) break;
    if (options.stop.stop_requested())
      return Fail(ErrorCode::kCancelled, fmt::format("inflating data file {} was given up", path));
    const std::string_view bytes(chunk.data(), static_cast<std::size_t>(got));
    if (!cache && text->size() + bytes.size() > options.inflated_ram_bytes_max) {
      auto made = MakeCacheFile(options.cache_dir);
      if (!made) return std::unexpected(made.error());
      cache = std::move(*made);
      TARN_RETURN_IF_ERROR(WriteAll(cache->number, *text, path));
      text = std::make_unique<std::string>();
    }
    if (cache)
      TARN_RETURN_IF_ERROR(WriteAll(cache->number, bytes, path));
    else
      text->append(bytes);
  }
  if (cache) return Map(cache->number, path);
  owned_ = std::move(text);
  bytes_ = *owned_;
  return {};
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      owned_(std::move(other.owned_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)) {}

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(owned_, other.owned_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  return *this;
}

FileBytes::~FileBytes() {
  if (mapping_) ::munmap(mapping_, mapping_bytes_);
}

}  // namespace tarn::worker
