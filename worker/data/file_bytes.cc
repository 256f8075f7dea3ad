#include "worker/data/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "worker/data/gzip_reader.h"

namespace tarn::worker {
namespace {

namespace fs = std::filesystem;

// Owns a file descriptor and closes it.
struct File {
  int number = -1;
  explicit File(int n) : number(n) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (number >= 0) ::close(number);
  }
};

// The mappings of this process, for the handler of SIGBUS, which may take no lock.
struct Range {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // 0: free
  std::atomic<bool> cut{false};                  // bytes were missing when they were read
};
constexpr std::size_t kRanges = 256;  // further mappings are not guarded: truncating their file ends the process
std::array<Range, kRanges> ranges;
struct sigaction handler_before;

// Maps zeros in place of the truncated bytes, to the mapping's end, and continues.
void OnBusError(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Range& range : ranges) {
    const std::uintptr_t begin = range.begin.load(), end = range.end.load();
    if (address < begin || address >= end) continue;
    const std::uintptr_t page = address & ~(static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)) - 1);
    void* const page_begin = static_cast<char*>(info->si_addr) - (address - page);
    const int saved = errno;
    void* const zeros = ::mmap(page_begin, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = saved;
    if (zeros == MAP_FAILED) break;
    range.cut.store(true);
    return;
  }
  if ((handler_before.sa_flags & SA_SIGINFO) != 0 && handler_before.sa_sigaction != nullptr)
    return handler_before.sa_sigaction(signal, info, context);
  if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN)
    return handler_before.sa_handler(signal);
  // The access faults again and ends the process.
  ::sigaction(SIGBUS, &handler_before, nullptr);
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &handler_before);
  });
}

// Registers a mapping for the handler. Null: all entries of `ranges` are taken.
Range* Guard(std::uintptr_t begin, std::uintptr_t end) {
  InstallHandler();
  for (Range& range : ranges) {
    std::uintptr_t free = 0;
    if (!range.begin.compare_exchange_strong(free, begin)) continue;
    range.cut.store(false);
    range.end.store(end);
    return &range;
  }
  return nullptr;
}

std::string_view NameOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe (FIFO)";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "not a regular file";
}

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

// First bytes of some kinds of files, none of which is a data format.
struct Kind {
  std::string_view magic, name;
};
constexpr std::string_view kGzip = "gzip";
constexpr Kind kKinds[] = {{"\x1F\x8B", kGzip},   {"\x28\xB5\x2F\xFD", "zstd"}, {"BZh", "bzip2"},
                           {"\xFD\x37zXZ", "xz"}, {"PK\x03\x04", "zip"},        {"PAR1", "Parquet"}};

// The name of the file's kind; empty if it is none of these.
std::string_view KindOf(int file) {
  char head[8] = {};
  const ssize_t got = ::pread(file, head, sizeof(head), 0);
  const std::string_view begin(head, got > 0 ? static_cast<std::size_t>(got) : 0);
  for (const Kind& kind : kKinds)
    if (begin.starts_with(kind.magic)) return kind.name;
  return {};
}

}  // namespace

// The mapping of a file, which remains open to check its size.
struct FileBytes::Mapping {
  Mapping(void* memory, std::size_t size, int descriptor, std::string name)
      : begin(memory), bytes(size), file(descriptor), path(std::move(name)) {
    const auto first = reinterpret_cast<std::uintptr_t>(memory);
    range = Guard(first, first + size);
  }
  ~Mapping() {
    if (range != nullptr) {
      range->end.store(0);
      range->begin.store(0);
    }
    ::munmap(begin, bytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* begin;
  std::size_t bytes;
  File file;
  std::string path;
  Range* range;
};

Expected<FileBytes> FileBytes::Open(const std::string& path, std::string_view expected,
                                    const FileBytesOptions& options) {
  // O_NONBLOCK: without it, opening a pipe would wait for a writer.
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::unexpected(MissingFile(path, expected));
    return std::unexpected(SystemError(path, "open the data file", errno));
  }
  struct stat status{};
  if (::fstat(file.number, &status) != 0) return std::unexpected(SystemError(path, "stat the data file", errno));
  if (!S_ISREG(status.st_mode))
    return Fail(ErrorCode::kMalformed,
                fmt::format("data file {} is {}, in which rows cannot be read by number: expected {}, in a "
                            "regular file",
                            path, NameOf(status.st_mode), expected));
  const std::string_view kind = KindOf(file.number);
  if (!kind.empty() && kind != kGzip)
    return Fail(ErrorCode::kMalformed, fmt::format("data file {} is a {} file: expected {}", path, kind, expected));
  FileBytes result;
  TARN_RETURN_IF_ERROR(kind == kGzip ? result.Inflate(file.number, path, options) : result.Map(file.number, path));
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
  const int own = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    const int error = errno;
    ::munmap(mapping, size);
    return std::unexpected(SystemError(path, "keep open", error));
  }
  mapping_ = std::make_unique<Mapping>(mapping, size, own, path);
  bytes_ = {static_cast<const char*>(mapping), size};
  return {};
}

Status FileBytes::CheckWhole() const {
  if (mapping_ == nullptr) return {};
  struct stat status{};
  const bool known = ::fstat(mapping_->file.number, &status) == 0;
  const auto size = known ? static_cast<std::size_t>(status.st_size) : mapping_->bytes;
  const bool cut = mapping_->range != nullptr && mapping_->range->cut.load();
  if (size >= mapping_->bytes && !cut) return {};
  return Fail(ErrorCode::kIo,
              fmt::format("data file {} was truncated while it was read: it has {} bytes, expected {} as "
                          "when it was opened: restore the complete file and start again",
                          mapping_->path, size, mapping_->bytes));
}

Status FileBytes::Inflate(int file, const std::string& path, const FileBytesOptions& options) {
  constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  GzipReader gzip(file, path);
  auto text = std::make_unique<std::string>();
  std::unique_ptr<File> cache;
  std::string chunk(kChunkBytes, '\0');
  for (;;) {
    const Expected<std::size_t> got = gzip.Read(chunk);
    if (!got) return std::unexpected(got.error());
    if (*got == 0) break;
    if (options.stop.stop_requested())
      return Fail(ErrorCode::kCancelled, fmt::format("decompressing data file {} was cancelled", path));
    const std::string_view bytes(chunk.data(), *got);
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
    : bytes_(std::exchange(other.bytes_, {})), owned_(std::move(other.owned_)), mapping_(std::move(other.mapping_)) {}

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(owned_, other.owned_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

FileBytes::FileBytes() = default;
FileBytes::~FileBytes() = default;

}  // namespace tarn::worker
