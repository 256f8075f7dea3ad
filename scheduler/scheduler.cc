#include "scheduler/scheduler.h"

#include <utility>

#include "scheduler/impl.h"

namespace tarn::scheduler {

Scheduler::Scheduler(SchedulerOptions options, SchedulerStore* store)
    : impl_(std::make_unique<Impl>(Prepared(std::move(options)), store)) {}
Scheduler::~Scheduler() = default;

void Scheduler::Start(TimeUs now) { impl_->Start(now); }
void Scheduler::OnMessage(Peer from, Message message, TimeUs now, Outbox* out) {
  impl_->Handle(from, message, now);
  impl_->Settle(now, out);
}
void Scheduler::Handle(Peer from, Message message, TimeUs now) { impl_->Handle(from, message, now); }
void Scheduler::Settle(TimeUs now, Outbox* out) { impl_->Settle(now, out); }
void Scheduler::OnTimer(TimeUs now, Outbox* out) {
  impl_->Settle(now, out);
  const std::size_t sent = out->size();
  impl_->OnTimer(now, out);
  impl_->Persist(sent, now, out);
}
TimeUs Scheduler::NextTimer() const { return impl_->NextTimer(); }
void Scheduler::OnWritten(const StoreWritten& written, TimeUs now, Outbox* out) {
  impl_->Settle(now, out);
  impl_->OnWritten(written, now, out);
}
void Scheduler::RequestStop(TimeUs now, Outbox* out) {
  impl_->Settle(now, out);
  const std::size_t sent = out->size();
  impl_->RequestStop(now, out);
  impl_->Persist(sent, now, out);
}
void Scheduler::RequestCheckpoint(TimeUs now, Outbox* out) {
  impl_->Settle(now, out);
  const std::size_t sent = out->size();
  impl_->RequestCheckpoint(now, out);
  impl_->Persist(sent, now, out);
}
bool Scheduler::stopping() const { return impl_->stop().begun(); }
bool Scheduler::stopped() const { return impl_->stop().over(); }
const Shutdown& Scheduler::stop_reason() const { return impl_->stop().reason(); }
const View& Scheduler::view() const { return impl_->view(); }
Progress Scheduler::progress() const { return impl_->progress(); }
std::vector<Note> Scheduler::TakeNotes() { return impl_->TakeNotes(); }
std::uint64_t Scheduler::StateHash() const { return impl_->StateHash(); }

}  // namespace tarn::scheduler
