// The requests of worker/tarn.h, based on request.h. Internal to worker/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "worker/client/completion.h"
#include "worker/client/pulled_rows.h"
#include "worker/runtime/request.h"

namespace tarn::worker {

// A shared plan, or a plan owned by the request.
struct PlanOfRequest {
  std::shared_ptr<const Plan> shared;  // null: own
  Plan own;
  const Plan& operator*() const { return shared == nullptr ? own : *shared; }
  const Plan* operator->() const { return &**this; }
};

// A pull of rows of one table or several. The rows of each reply are copied once, from its frame to memory of the
// request or of the caller, in the caller's order or the plan's.
class PullRequest final : public Request {
 public:
  // The part of a pull for one table.
  struct Table {
    PlanOfRequest plan;
    CallerOrder order;     // of an owned plan: the order of the returned rows
    float* out = nullptr;  // of the caller, with room for all rows; null: memory of the request
  };
  // use: the clock of the pull; nullopt: the client's clock when the request starts.
  PullRequest(std::vector<Table> tables, std::optional<Clock> use, int priority);

  std::size_t tables() const { return parts_.size(); }
  // After completion: the rows of a table, and the staleness of the oldest of them in clocks.
  std::span<const float> rows(std::size_t table) const { return parts_[table].rows(); }
  std::uint64_t staleness(std::size_t table) const { return table < parts_.size() ? parts_[table].staleness() : 0; }

  bool writes_to_caller() const {
    return std::ranges::any_of(parts_, [](const Part& part) { return part.writes_to_caller(); });
  }
  // After it returns, the request no longer writes to the caller's memory. Any thread.
  void Detach();

  void Start(Client* client, TimeUs now, Outbox* out) override;

 private:
  class Part final : public PullSink {
   public:
    Part(PullRequest* whole, Table table);
    const Plan& plan() const { return *table_.plan; }
    std::span<const float> rows() const;
    std::uint64_t staleness() const { return staleness_; }
    bool writes_to_caller() const { return table_.out != nullptr; }

    void Rows(const PulledRows& rows) override;
    void Done(std::uint64_t staleness) override;
    void Failed(const Error& error) override { whole_->OnEnd(error); }

   private:
    bool in_plan_order() const { return table_.plan.shared != nullptr; }
    std::size_t row_count() const { return in_plan_order() ? plan().keys.size() : plan().index.size(); }
    void Copy(const PulledRows& rows, float* to) const;

    PullRequest* whole_;
    Table table_;
    // The rows, if they are in memory of the request:
    PlanRows kept_;   // in the plan's order, for a shared plan
    Buffer ordered_;  // in the caller's order, for an owned plan
    std::uint64_t staleness_ = 0;
  };

  // Called at the end of each part, with kOk or its error. The request ends with its last part.
  void OnEnd(const Error& error);

  std::vector<Part> parts_;
  std::optional<Clock> use_;
  int priority_;
  std::size_t waiting_;  // parts that have not ended
  Error failure_{ErrorCode::kOk, ""};
  std::mutex out_mutex_;  // held while rows are written to memory of the caller
  bool detached_ = false;
};

// A push of gradients to one table or several.
class PushRequest final : public Request, public Completion<> {
 public:
  struct Table {
    PlanOfRequest plan;
    Buffer gradients;  // a row for each key of the plan
  };
  // pulled: the clock for which the rows were pulled; nullopt: the client's clock when the request starts.
  PushRequest(std::vector<Table> tables, std::optional<Clock> pulled)
      : tables_(std::move(tables)), pulled_(pulled), waiting_(tables_.size()) {}
  // Logs a warning if the push was invalid and nobody has read that: the clock went on without it.
  ~PushRequest() override;

  // Called for each table. The request ends with the last one.
  void Done() override { OnEnd({ErrorCode::kOk, ""}); }
  void Failed(const Error& error) override { OnEnd(error); }

  void Start(Client* client, TimeUs now, Outbox* out) override;

 private:
  void OnEnd(const Error& error);

  std::vector<Table> tables_;
  std::optional<Clock> pulled_;
  std::size_t waiting_;  // tables whose push has not ended
  Error failure_{ErrorCode::kOk, ""};
};

// A request whose only result is its status. start(client, done, now, out) passes it to the client.
template <typename Starter>
class StatusRequest final : public Request, public Completion<> {
 public:
  explicit StatusRequest(Starter start) : start_(std::move(start)) {}
  void Done() override { Finish(); }
  void Failed(const Error& error) override { Finish(error); }
  void Start(Client* client, TimeUs now, Outbox* out) override { start_(client, this, now, out); }

 private:
  Starter start_;
};
template <typename Starter>
std::shared_ptr<Request> MakeStatusRequest(Starter start) {
  return std::make_shared<StatusRequest<Starter>>(std::move(start));
}

// A request whose answer is a value. start(client, done, now, out) passes it to the client.
template <typename Value>
class ValueRequest : public Request, public Completion<Value> {
 public:
  void Done(Value answer) override {
    value = std::move(answer);
    Finish();
  }
  void Failed(const Error& error) override { Finish(error); }

  Value value{};  // valid when it is done
};
template <typename Value, typename Starter>
std::shared_ptr<ValueRequest<Value>> MakeValueRequest(Starter start) {
  class Started final : public ValueRequest<Value> {
   public:
    explicit Started(Starter starter) : start_(std::move(starter)) {}
    void Start(Client* client, TimeUs now, Outbox* out) override { start_(client, this, now, out); }

   private:
    Starter start_;
  };
  return std::make_shared<Started>(std::move(start));
}

}  // namespace tarn::worker
