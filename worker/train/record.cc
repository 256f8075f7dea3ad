#include "worker/train/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "core/file.h"

namespace tarn::worker {

Record::~Record() {
  if (open()) close(file_);
}

Status Record::Open(const std::string& path) {
  path_ = path;
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) return std::unexpected(SystemError(path, "open", errno));
  return {};
}

Status Record::Lease(Incarnation worker, LeaseId lease) {
  return Write(fmt::format("lease {} {}\n", worker.value, lease.value));
}

Status Record::Begin(Incarnation worker, std::uint64_t pushed) {
  return Write(fmt::format("begin {} {}\n", worker.value, pushed));
}

Status Record::Batch(Incarnation worker, const LeaseGrant& lease, std::uint64_t offset, std::uint64_t rows,
                     Clock clock) {
  return Write(fmt::format("batch {} {} {} {} {} {}\n", worker.value, lease.epoch, lease.first_row,
                           lease.first_row + offset, rows, clock.value));
}

Status Record::Tick(Incarnation worker, Clock clock) {
  if (clock <= ticked_) return {};
  ticked_ = clock;
  return Write(fmt::format("tick {} {}\n", worker.value, clock.value));
}

Status Record::Write(const std::string& line) {
  if (!open()) return {};
  const ssize_t written = write(file_, line.data(), line.size());
  if (written < 0) return std::unexpected(SystemError(path_, "write", errno));
  if (static_cast<std::size_t>(written) < line.size()) return std::unexpected(SystemError(path_, "write", ENOSPC));
  return {};
}

}  // namespace tarn::worker
