#include "scheduler/state/state_gate.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/limits.h"

namespace tarn::scheduler {
namespace {

template <class T>
bool Is(const Body& body) {
  return std::holds_alternative<T>(body);
}

std::uint64_t SubjectOf(const Body& body) {
  if (const auto* created = std::get_if<CreateTable>(&body)) return created->spec.id.value;
  if (const auto* answer = std::get_if<CheckpointRequest>(&body)) return answer->number;
  return 0;
}

// A tool may receive a checkpoint's directory only when the state on disk names it, because a restart from an older
// state would remove it.
bool NamesACheckpoint(const Body& body) {
  const auto* answer = std::get_if<CheckpointRequest>(&body);
  return answer != nullptr && answer->code == ErrorCode::kOk && !answer->directory.empty();
}

}  // namespace

bool StateGate::MayLeave(const Body& body) const {
  if (durable() || Is<HeartbeatAck>(body)) return true;
  if (Is<CheckpointRequest>(body)) return !NamesACheckpoint(body);
  return ending_ && Is<Shutdown>(body);
}

void StateGate::HoldBack(std::uint64_t revision, std::size_t sent, Outbox* out) {
  if (std::exchange(revision_, revision) != revision || newest_ == 0) ++newest_;
  if (durable()) return;
  std::size_t kept = sent;
  for (std::size_t i = sent; i < out->size(); ++i) {
    Outgoing& outgoing = (*out)[i];
    // An acknowledgement must not reveal a view that is still held back.
    if (auto* ack = std::get_if<HeartbeatAck>(&outgoing.message.body))
      ack->view = std::min(ack->view, durable_version_);
    if (!MayLeave(outgoing.message.body))
      HoldOne(std::move(outgoing));
    else if (kept++ != i)
      (*out)[kept - 1] = std::move(outgoing);
  }
  out->erase(out->begin() + static_cast<std::ptrdiff_t>(kept), out->end());
}

// Drops the message if there is no room: messages that must arrive are resent or requested again.
void StateGate::HoldOne(Outgoing outgoing) {
  const Body& body = outgoing.message.body;
  if (ending_ && !Is<CheckpointRequest>(body)) return;
  const Slot slot{outgoing.to, body.index(), SubjectOf(body)};
  Held& held = writing_ == newest_ ? leaving_ : waiting_;
  if (this->held() < limits::kHeldMessagesMax || held.contains(slot)) held.insert_or_assign(slot, std::move(outgoing));
}

void StateGate::End() {
  if (std::exchange(ending_, true)) return;
  for (Held* held : {&waiting_, &leaving_})
    std::erase_if(*held, [](const auto& entry) { return !Is<CheckpointRequest>(entry.second.message.body); });
}

std::uint64_t StateGate::Begin(ViewVersion version, TimeUs now) {
  writing_ = newest_;
  writing_version_ = version;
  since_ = now;
  leaving_ = std::exchange(waiting_, {});
  return writing_;
}

bool StateGate::OnWritten(std::uint64_t number, Outbox* out) {
  if (writing_ == 0 || number != writing_) return false;
  durable_ = std::exchange(writing_, 0);
  durable_version_ = writing_version_;
  failures_ = 0;
  for (auto& [slot, outgoing] : std::exchange(leaving_, {})) out->push_back(std::move(outgoing));
  return true;
}

bool StateGate::OnFailed(std::uint64_t number, TimeUs now) {
  if (writing_ == 0 || number != writing_) return false;
  writing_ = 0;
  ++failures_;
  not_before_ = now + kPauseUs;
  waiting_.merge(leaving_);  // newer messages are kept
  leaving_.clear();
  return true;
}

}  // namespace tarn::scheduler
