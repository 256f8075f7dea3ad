#include "bench/scale_model/scheduler_model.h"

#include <utility>

#include "bench/scale_model/machine.h"
#include "bench/scale_model/stopwatch.h"

namespace tarn::scale {
namespace {

constexpr Ns kTurnNs = 100'000, kTimerNs = 50'000'000;

}  // namespace

SchedulerModel::SchedulerModel(const Job& job, sim::EventQueue* events, Hooks hooks)
    : events_(events), hooks_(std::move(hooks)) {
  scheduler::SchedulerOptions options;
  options.job = job;
  options.job_text = ToToml(job);
  scheduler_ = std::make_unique<scheduler::Scheduler>(std::move(options), &store_);
}

void SchedulerModel::Start() {
  scheduler_->Start(NowUs());
  Timer();
}

void SchedulerModel::Timer() {
  Outbox out;
  if (NowUs() >= scheduler_->NextTimer()) scheduler_->OnTimer(NowUs(), &out);
  Send(&out);
  events_->At(events_->now() + kTimerNs, [this] { Timer(); });
}

void SchedulerModel::Handle(Peer from, Message message) {
  const Stopwatch watch;
  scheduler_->Handle(from, std::move(message), NowUs());
  seconds_ += watch.seconds();
  ++messages_;
  if (std::exchange(settle_planned_, true)) return;
  events_->At(events_->now() + kTurnNs, [this] { Settle(); });
}

void SchedulerModel::Settle() {
  settle_planned_ = false;
  Outbox out;
  const Stopwatch watch;
  scheduler_->Settle(NowUs(), &out);
  seconds_ += watch.seconds();
  Send(&out);
}

void SchedulerModel::Send(Outbox* out) {
  for (Outgoing& o : *out) {
    KeepOwnEntry(o.to, &o.message.body);
    events_->At(events_->now(), [this, to = o.to, message = std::move(o.message)]() mutable {
      hooks_.deliver(to, std::move(message));
    });
  }
}

// Removes the other workers' entries from a view that is sent to a worker. A client uses only its own entry, and with
// all entries the views of n workers would need memory for n^2 of them.
void SchedulerModel::KeepOwnEntry(Peer to, Body* body) const {
  auto* welcome = std::get_if<Welcome>(body);
  auto* update = std::get_if<ViewUpdate>(body);
  View* view = welcome != nullptr ? &welcome->view : update != nullptr ? &update->view : nullptr;
  const auto rank = view != nullptr ? hooks_.worker_at(to) : std::nullopt;
  if (!rank) return;
  std::erase_if(view->workers, [&](const WorkerEntry& entry) { return entry.rank != *rank; });
  view->workers.shrink_to_fit();
}

}  // namespace tarn::scale
