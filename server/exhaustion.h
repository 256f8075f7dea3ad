// Memory that cannot be had: thrown where it is noticed, because it can be anywhere, and turned into an error where a
// loop or a state machine's step begins. What the step had changed is then undefined: the shard ends.
#pragma once

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"

namespace tarn::server {

// What was asked for, for those who know; std::bad_alloc does not.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string asked) : text_(std::make_shared<const std::string>(std::move(asked))) {}
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_;  // copying an exception must not throw
};

// Runs step(). kIo, "out of memory: " and what was asked for, if it needed memory that is not there, or a container
// longer than can be.
template <typename Step>
Status CatchExhaustion(Step&& step) {
  try {
    std::forward<Step>(step)();
    return {};
  } catch (const OutOfMemory& e) {
    return Fail(ErrorCode::kIo, std::string("out of memory: ") + e.what());
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kIo, "out of memory");
  } catch (const std::length_error& e) {
    return Fail(ErrorCode::kIo, std::string("out of memory: longer than anything can be: ") + e.what());
  }
}

}  // namespace tarn::server
