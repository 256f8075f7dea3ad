#include "server/log/log_queue.h"

#include <utility>

namespace tarn::server {

Status WriteItems(std::vector<LogQueue::Item> items, LogWriter* writer) {
  std::vector<LogRecord> records;
  auto flush = [&]() -> Status {
    if (records.empty()) return {};
    // At most one batch may be torn, so the previous one is made durable first.
    if (writer->durable() != writer->last()) TARN_RETURN_IF_ERROR(writer->Sync(false));
    return writer->Write(std::exchange(records, {}));
  };
  for (LogQueue::Item& item : items) {
    if (auto* record = std::get_if<LogRecord>(&item)) {
      records.push_back(std::move(*record));
      continue;
    }
    TARN_RETURN_IF_ERROR(flush());
    if (const auto* begin = std::get_if<LogQueue::Begin>(&item)) {
      TARN_RETURN_IF_ERROR(writer->BeginSegment(begin->cut));
    } else {
      TARN_RETURN_IF_ERROR(writer->Sync(true));
      TARN_RETURN_IF_ERROR(writer->DropBefore(std::get<LogQueue::Drop>(item).before));
    }
  }
  return flush();
}

}  // namespace tarn::server
