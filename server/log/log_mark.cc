#include "server/log/log_mark.h"

namespace tarn::server {

Status LogMark::Reserve() {
  const auto reserved = file_->Allocate(2 * kLogPage, 2 * kLogPage);
  return reserved ? Status() : std::unexpected(reserved.error());
}

Status LogMark::Write(LogSequence durable, bool sync) {
  const auto bytes = EncodeMark(identity_, durable);
  const std::span<const std::byte> parts[] = {bytes};
  TARN_RETURN_IF_ERROR(file_->Write(slot_ * kLogPage, parts));
  slot_ ^= 1;
  return sync ? file_->Sync() : Status();
}

}  // namespace tarn::server
