// The completion of a request to worker::Client: the caller passes an object, on which the client reports the outcome.
// Internal to worker/.
//
// The client calls exactly one of Done and Failed, once, on the thread that drives it, within the call that makes the
// request or a later call. The object must exist until then, or until the client is destroyed, which calls nothing.
// None of these functions may call the client.
#pragma once

#include <cstdint>
#include <span>

#include "core/buffer.h"
#include "core/error.h"
#include "core/table/table_spec.h"
#include "worker/client/plan.h"

namespace tarn::worker {

// Value: the type of the answer.
template <typename Value = void>
class Completion {
 public:
  virtual void Done(Value value) = 0;
  virtual void Failed(const Error& error) = 0;

 protected:
  ~Completion() = default;
};
template <>
class Completion<void> {
 public:
  virtual void Done() = 0;
  virtual void Failed(const Error& error) = 0;

 protected:
  ~Completion() = default;
};

// Complete and Fail for an optional completion; null: the outcome is not wanted.
inline void Complete(Completion<>* done) {
  if (done != nullptr) done->Done();
}
template <typename Value>
void Fail(Completion<Value>* done, const Error& error) {
  if (done != nullptr) done->Failed(error);
}

// Rows of a pull from one reply.
struct PulledRows {
  std::span<const PlanRun> parts;  // rows of the plan, in the order of `values`
  ValueCodec codec = ValueCodec::kFp32;
  Buffer values;  // if lent (Buffer::lent), valid only during the call
};

// Receives the rows of a pull. Done is called after all rows; its value is the measured staleness of the oldest row
// (rule C4), in clocks.
class PullSink : public Completion<std::uint64_t> {
 public:
  // Called once per reply; each row of the plan is in exactly one reply. The sizes are verified.
  virtual void Rows(const PulledRows& rows) = 0;

 protected:
  ~PullSink() = default;
};

}  // namespace tarn::worker
