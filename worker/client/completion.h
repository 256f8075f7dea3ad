// How a request to worker::Client ends: whoever makes one hands in an object, and the client calls it. Internal to
// worker/.
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

// Value: what the answer is.
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

// A null pointer where a completion is optional: nobody asks for the outcome.
inline void Complete(Completion<>* done) {
  if (done != nullptr) done->Done();
}
template <typename Value>
void Fail(Completion<Value>* done, const Error& error) {
  if (done != nullptr) done->Failed(error);
}

// Rows of a pull, as one reply brings them.
struct PulledRows {
  std::span<const PlanRun> parts;  // which rows of the plan, in the order of `values`
  ValueCodec codec = ValueCodec::kFp32;
  Buffer values;  // lent ones (Buffer::lent) are good only during the call
};

// Where the rows of a pull go. Done: all have come; the value is how many clocks the oldest of them may be behind.
class PullSink : public Completion<std::uint64_t> {
 public:
  // Once for each reply; every row of the plan is in one of them. The sizes were checked.
  virtual void Rows(const PulledRows& rows) = 0;

 protected:
  ~PullSink() = default;
};

}  // namespace tarn::worker
