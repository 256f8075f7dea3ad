#include "server/effect_record.h"

#include <span>

namespace tarn::server {
namespace {

constexpr std::size_t kWriteBytes = std::size_t{256} << 10;

}  // namespace

// Ids of requests grow, so the lowest are the oldest.
bool EffectRecord::IsFirst(Incarnation worker, RequestId pull) {
  std::set<RequestId>& pulls = pulls_[worker];
  if (!pulls.insert(pull).second) return false;
  if (pulls.size() > kPullsKept) pulls.erase(pulls.begin());
  return true;
}

void EffectRecord::Add(const Effect& effect) {
  waiting_ += ToLine(effect);
  waiting_ += '\n';
  if (waiting_.size() >= kWriteBytes) Write();
}

void EffectRecord::Write() {
  if (status_) status_ = file_.WriteAt(std::as_bytes(std::span(waiting_)), written_);
  written_ += waiting_.size();
  waiting_.clear();
}

Status EffectRecord::Close() {
  Write();
  TARN_RETURN_IF_ERROR(status_);
  return file_.Commit();
}

}  // namespace tarn::server
