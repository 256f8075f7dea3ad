#include "worker/client/client_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <new>

#include "core/listening.h"
#include "core/log.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kShortHistogram = 64;  // buckets; longer ones are not copied in every turn
constexpr TimeUs kMetricsPeriodUs = 500'000;
constexpr double kHeardSeconds = 5;  // a scheduler that is there answers each second

Error Fine() { return {ErrorCode::kOk, ""}; }

// Why nothing more can come of a client that is fenced or was told to stop.
Error EndOf(const Client& client) {
  const Shutdown& reason = client.stop_reason();
  if (client.state() == ClientState::kFenced)
    return {ErrorCode::kFenced, "this worker was declared dead; connect anew"};
  if (reason.code == ErrorCode::kOk) return {ErrorCode::kCancelled, "the job is over: " + reason.reason};
  return {reason.code, reason.reason};
}

}  // namespace

ClientLoop::ClientLoop(ClientOptions options, const Bounds& bounds, std::unique_ptr<net::Transport> transport)
    : transport_(std::move(transport)),
      exchange_(options, transport_.get()),
      bounds_(bounds),
      driver_(std::make_shared<ClientDriver>(ClientDriver::Loop{.act = [this] { return TryAct(); },
                                                                .exchange = [this](TimeUs most) { TryExchange(most); },
                                                                .wake = [this] { transport_->Wake(); }})) {}

ClientLoop::~ClientLoop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  transport_->Wake();
  driver_->Disturb();
  if (thread_.joinable()) thread_.join();
  driver_->Close();
}

Status ClientLoop::Join(const std::string& scheduler, double seconds, double note_seconds) {
  TARN_RETURN_IF_ERROR(exchange_.Start(scheduler));
  join_begun_ = scheduler_heard_ = client().scheduler_heard();
  thread_ = std::thread([this] { driver_->Run(); });
  std::unique_lock lock(mutex_);
  const auto settled = [this] { return joined_ || ended_; };
  for (double waited = 0; !settled() && waited < seconds; waited += note_seconds) {
    if (waited > 0) {
      const std::string note = JoinNote(waited);
      lock.unlock();
      LogWarning("{}{}", note, std::isfinite(seconds) ? fmt::format("; gives up in {:.0f} s", seconds - waited) : "");
      lock.lock();
    }
    changed_.wait_for(lock, WaitTime(std::min(note_seconds, seconds - waited)), settled);
  }
  if (ended_) return std::unexpected(*ended_);
  if (joined_) return {};
  return Fail(ErrorCode::kTimeout, JoinNote(seconds));
}

// What a caller of Connect waits for. With mutex_ held.
std::string ClientLoop::JoinNote(double waited) const {
  const double silent = static_cast<double>(Now() - scheduler_heard_) * 1e-6;
  if (scheduler_heard_ == join_begun_ || silent > kHeardSeconds)
    return fmt::format("the scheduler at {} has not been heard for {:.0f} s (is it running, is that its address, {}?)",
                       exchange_.scheduler(), silent, kSameKeys);
  return fmt::format(
      "the scheduler at {} has had no place for this worker for {:.0f} s: its fleet is not complete (its "
      "log says who is missing), or has all of its workers",
      exchange_.scheduler(), waited);
}

void ClientLoop::Post(Posted posted, bool may_wait) {
  bool first = false;
  {
    std::unique_lock lock(mutex_);
    if (ended_) {
      const Error error = *ended_;
      lock.unlock();
      for (const ResultPtr& result : posted.results) result->Finish(error);
      return;
    }
    first = posted_.empty();
    posted_bytes_ += posted.bytes;
    posted_.push_back(std::move(posted));
  }
  // What is not the first of those that wait is taken with it.
  if (!driver_->TryAct(may_wait) && first) transport_->Wake();
}

void ClientLoop::WaitForSpace(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const std::size_t waiting = posted_bytes_ + pending_bytes_;
    return ended_ || waiting == 0 || waiting + bytes <= bounds_.queued_bytes_max;
  });
}

// What an unanswered pull may take: its keys, and its rows once the first of them have come.
bool ClientLoop::TakeRoom(const Plan& plan, ClientResult* pull) {
  const std::size_t bytes = plan.keys.size() * (sizeof(Key) + plan.dim * sizeof(float));
  std::size_t before = asked_bytes_->load();
  while (before == 0 || before + bytes <= bounds_.asked_bytes_max) {
    if (!asked_bytes_->compare_exchange_weak(before, before + bytes)) continue;
    pull->asked = asked_bytes_;
    pull->asked_bytes = bytes;
    return true;
  }
  pull->Finish({ErrorCode::kOverloaded,
                fmt::format("pulls of {} bytes are not answered yet, and this one is for {} more: expected at most {} "
                            "(ConnectOptions::asked_bytes_max); wait for earlier ones first",
                            before, bytes, bounds_.asked_bytes_max)});
  return false;
}

void ClientLoop::Pull(PlanPtr plan, std::optional<Clock> use_clock, int priority, ResultPtr result) {
  if (!TakeRoom(*plan, result.get())) return;
  result->driver = driver_;
  result->awaited = true;
  Post({[=, this] {
          const Clock clock = use_clock.value_or(client().clock());
          requests_[client().Pull(*plan, {clock, priority}, Now(), exchange_.outbox())] = result;
        },
        0,
        {result}},
       true);
}

void ClientLoop::Prefetch(PlanPtr plan) {
  Post({[=, this] { client().Prefetch(*plan, Now(), exchange_.outbox()); }, 0, {}}, true);
}

void ClientLoop::Push(PlanPtr plan, Buffer gradients, std::optional<Clock> pulled_clock, ResultPtr result) {
  const std::size_t bytes = gradients.size();
  result->driver = driver_;
  WaitForSpace(bytes);
  Post({[=, this] {
          const Clock pulled = pulled_clock.value_or(client().clock());
          requests_[client().Push(*plan, gradients, pulled, Now(), exchange_.outbox())] = result;
        },
        bytes,
        {result}},
       true);
}

void ClientLoop::PushPull(PlanPtr plan, Buffer gradients, MaybePosition position, ResultPtr pushed, ResultPtr pulled) {
  if (!TakeRoom(*plan, pulled.get())) {
    Push(std::move(plan), std::move(gradients), {}, std::move(pushed));
    return TickTo({}, position, std::make_shared<ClientResult>());
  }
  const std::size_t bytes = gradients.size();
  pushed->driver = pulled->driver = driver_;
  WaitForSpace(bytes);
  AdvanceClock({});
  Post({[=, this] {
          const Clock clock = client().clock();
          const auto ids = client().PushPull(*plan, gradients, clock, position, Now(), exchange_.outbox());
          requests_[ids.push] = pushed;
          requests_[ids.pull] = pulled;
        },
        bytes,
        {pushed, pulled}});
}

Clock ClientLoop::AdvanceClock(std::optional<Clock> to) {
  const std::lock_guard lock(mutex_);
  const Clock wanted = to.value_or(clock_ + 1);
  clock_ = std::max(clock_, wanted);
  return wanted;
}

void ClientLoop::TickTo(std::optional<Clock> clock, MaybePosition position, ResultPtr result) {
  const Clock to = AdvanceClock(clock);
  result->driver = driver_;
  Post({[=, this] {
          if (to <= client().clock()) return result->Finish(Fine());
          client().TickTo(to, position, Now(), exchange_.outbox());
          ticks_.emplace(to, result);
        },
        0,
        {result}});
}

void ClientLoop::CreateTable(TableSpec spec, ResultPtr result) {
  Post({[=, this] {
          creators_.emplace_back(spec, result);
          client().CreateTable(spec, Now(), exchange_.outbox());
        },
        0,
        {result}});
}

void ClientLoop::FindTable(std::string name, ResultPtr result) {
  Post({[=, this] {
          finders_.emplace(name, result);
          AnswerTableFinders();
        },
        0,
        {result}});
}

void ClientLoop::Barrier(ResultPtr result) {
  Post({[=, this] {
          barriers_.push_back(result);
          client().Barrier(Now(), exchange_.outbox());
        },
        0,
        {result}});
}

void ClientLoop::RequestLeases(LeaseRequest request, ResultPtr result) {
  Post({[=, this] {
          leases_.push_back(result);
          client().RequestLeases(request, Now(), exchange_.outbox());
        },
        0,
        {result}});
}

void ClientLoop::Leave(ResultPtr result) {
  Post({[=, this] {
          leavers_.push_back(result);
          client().Leave(Now(), exchange_.outbox());
        },
        0,
        {result}});
}

Clock ClientLoop::clock() const {
  const std::lock_guard lock(mutex_);
  return clock_;
}

Client::Counters ClientLoop::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::vector<std::uint64_t> ClientLoop::staleness() const {
  const std::lock_guard lock(mutex_);
  return staleness_;
}

// Whoever takes the turn, the loop's thread or a caller, is not who asked for what there is no memory for.
bool ClientLoop::TryAct() {
  try {
    if (!exhausted_) return Act();
  } catch (const std::bad_alloc&) {
  }
  End({ErrorCode::kIo, "out of memory"});
  return false;
}

void ClientLoop::TryExchange(TimeUs at_most) {
  try {
    Exchange(at_most);
  } catch (const std::bad_alloc&) {
    exhausted_ = true;
  }
}

// The first half of a turn. False: everything that waits has been told that nothing more will come.
bool ClientLoop::Act() {
  const auto end = [this](Error error) {
    End(std::move(error));
    return false;
  };
  RunCommands();
  for (ClientEvent& event : client().TakeEvents()) Deliver(std::move(event));
  const Expected<bool> new_view = exchange_.ConnectShards();
  if (!new_view) return end(new_view.error());
  if (*new_view) AnswerTableFinders();
  exchange_.Send();
  Publish();
  if (client().state() == ClientState::kFenced || client().state() == ClientState::kStopped)
    return end(EndOf(client()));
  if (Status status = exchange_.CheckScheduler(); !status) return end(status.error());
  return !Stops() || end({ErrorCode::kCancelled, "the client is gone"});
}

bool ClientLoop::Stops() const {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void ClientLoop::RunCommands() {
  if (client().state() != ClientState::kRunning) return;
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(posted_);
  }
  auto next = taken_.begin();
  while (next != taken_.end() && client().state() == ClientState::kRunning) (next++)->run();
  if (next != taken_.end()) {  // one of them was the client's end: the others are told
    const std::lock_guard lock(mutex_);
    posted_.insert(posted_.begin(), std::make_move_iterator(next), std::make_move_iterator(taken_.end()));
  }
  taken_.clear();
}

void ClientLoop::Exchange(TimeUs at_most) {
  exchange_.Wait(at_most);
  exchange_.Accept();
  const TimeUs now = Now();
  if (now < next_metrics_) return;
  next_metrics_ = now + kMetricsPeriodUs;
  client().SetMetrics(MetricsOf(client().counters()));
}

// What other threads may see of the client.
void ClientLoop::Publish() {
  {
    const std::lock_guard lock(mutex_);
    posted_bytes_ = 0;
    for (const Posted& posted : posted_) posted_bytes_ += posted.bytes;
    pending_bytes_ = client().pending_bytes();
    scheduler_heard_ = client().scheduler_heard();
    counters_ = client().counters();
    if (pulled_ && (client().staleness().size() <= kShortHistogram || Now() >= next_staleness_)) {
      pulled_ = false;
      next_staleness_ = Now() + kMetricsPeriodUs;
      staleness_ = client().staleness();
    }
    clock_ = std::max(clock_, client().clock());
    if (!joined_ && client().state() == ClientState::kRunning) {
      welcome_ = client().welcome();
      clock_ = client().clock();
      partition_bits_ = client().view().routes.partition_bits;
      transport_->SetBusyPoll(client().busy_poll_us());
      joined_ = true;
    }
  }
  changed_.notify_all();
}

void ClientLoop::AnswerTableFinders() {
  for (const TableSpec& spec : client().view().tables) {
    const auto [first, last] = finders_.equal_range(spec.name);
    for (auto it = first; it != last; ++it) {
      it->second->table = spec;
      it->second->Finish(Fine());
    }
    finders_.erase(first, last);
  }
}

void ClientLoop::Resolve(RequestId request, const std::function<void(ClientResult&)>& fill) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return;
  const ResultPtr result = std::move(it->second);
  requests_.erase(it);
  fill(*result);
}

void ClientLoop::OnTickDone(Clock clock) {
  const auto end = ticks_.upper_bound(clock);
  for (auto it = ticks_.begin(); it != end; ++it) it->second->Finish(Fine());
  ticks_.erase(ticks_.begin(), end);
}

void ClientLoop::OnTableReady(const TableReady& ready) {
  std::erase_if(creators_, [&](const auto& creator) {
    if (creator.first != ready.wanted) return false;
    creator.second->table = ready.spec;
    creator.second->Finish({ready.code, ready.message});
    return true;
  });
}

void ClientLoop::Deliver(ClientEvent event) {
  const auto finish_first = [](std::deque<ResultPtr>* waiting) {
    if (waiting->empty()) return;
    waiting->front()->Finish(Fine());
    waiting->pop_front();
  };
  if (auto* pulled = std::get_if<PullDone>(&event)) {
    pulled_ = true;
    Resolve(pulled->request, [&](ClientResult& result) {
      result.rows = std::move(pulled->values);
      result.staleness = pulled->staleness;
      result.Finish(Fine());
    });
  } else if (const auto* pushed = std::get_if<PushDone>(&event)) {
    Resolve(pushed->request, [](ClientResult& result) { result.Finish(Fine()); });
  } else if (const auto* failed = std::get_if<RequestFailed>(&event)) {
    Resolve(failed->request, [&](ClientResult& result) { result.Finish(failed->error); });
  } else if (const auto* tick = std::get_if<TickDone>(&event)) {
    OnTickDone(tick->clock);
  } else if (const auto* table = std::get_if<TableReady>(&event)) {
    OnTableReady(*table);
  } else if (std::holds_alternative<BarrierDone>(event)) {
    finish_first(&barriers_);
  } else if (auto* granted = std::get_if<LeasesGranted>(&event)) {
    if (!leases_.empty()) leases_.front()->leases = std::move(granted->reply);
    finish_first(&leases_);
  }
}

// Ends everything that waits, now and from now on.
void ClientLoop::End(Error error) {
  std::vector<Posted> posted;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = error;
    posted.swap(posted_);
  }
  changed_.notify_all();
  const bool left = client().state() == ClientState::kStopped && client().stop_reason().code == ErrorCode::kOk;
  for (const ResultPtr& result : leavers_) result->Finish(left ? Fine() : error);
  for (const auto* commands : {&taken_, &posted})
    for (const Posted& p : *commands)
      for (const ResultPtr& result : p.results) result->Finish(error);
  for (const auto& [wanted, result] : creators_) result->Finish(error);
  for (const auto& [name, result] : finders_) result->Finish(error);
  for (const auto* waiting : {&barriers_, &leases_})
    for (const ResultPtr& result : *waiting) result->Finish(error);
  for (const auto& [clock, result] : ticks_) result->Finish(error);
  for (const auto& [request, result] : requests_) result->Finish(error);
}

}  // namespace tarn::worker
