// The failure of a job as its worker reports it: the first error counts, and is sent to the scheduler every second
// until the scheduler stops the fleet. A plain value; one thread.
#pragma once

#include <optional>
#include <utility>

#include "core/error.h"
#include "core/message.h"
#include "core/types.h"

namespace tarn::worker {

class JobFailure {
 public:
  // False, without any effect, if there was an error before.
  bool Set(Error error) {
    if (error_) return false;
    error_ = std::move(error);
    return true;
  }
  explicit operator bool() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

  // Returns the report to send now, if there is an error and none was returned in the last second.
  std::optional<Shutdown> TakeReport(TimeUs now) {
    if (!error_ || now < next_) return {};
    next_ = now + kPeriodUs;
    return Shutdown{error_->code, error_->message};
  }

 private:
  static constexpr TimeUs kPeriodUs = 1'000'000;

  std::optional<Error> error_;
  TimeUs next_ = 0;
};

}  // namespace tarn::worker
