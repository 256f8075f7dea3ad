#include "core/metrics/metrics_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/file.h"

namespace tarn {

Expected<MetricsFile> MetricsFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return std::unexpected(SystemError(path, "open", errno));
  return MetricsFile(fd, path);
}

MetricsFile::MetricsFile(MetricsFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

MetricsFile& MetricsFile::operator=(MetricsFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status MetricsFile::Append(std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  ssize_t written;
  do {
    written = ::write(fd_, bytes.data(), bytes.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return std::unexpected(SystemError(path_, "write", errno));
  // Does not write the rest, because another process may have written in between.
  if (std::size_t(written) != bytes.size())
    return Fail(ErrorCode::kIo,
                fmt::format("{}: wrote {} of the {} bytes of a line; is the disk full?", path_, written, bytes.size()));
  return {};
}

Expected<std::unique_ptr<MetricsWriter>> MetricsWriter::Open(DiskPool* pool, const std::string& path) {
  auto file = MetricsFile::Open(path);
  if (!file) return std::unexpected(file.error());
  return std::make_unique<MetricsWriter>(pool, *std::move(file));
}

void MetricsWriter::Append(std::vector<std::string> lines) {
  (void)disk_.TryPost(kWaitingMax, [this, lines = std::move(lines)] {
    for (const std::string& line : lines)
      if (const Status status = file_.Append(line); !status) LogWarning(limiter_, "{}", status.error().message);
  });
}

}  // namespace tarn
