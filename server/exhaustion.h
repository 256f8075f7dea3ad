// Converts failed allocations to errors. Any allocation may throw std::bad_alloc; CatchExhaustion catches it around
// each step of a shard and each turn of its loop. The state after an interrupted step is undefined, so the shard ends.
#pragma once

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"

namespace tarn::server {

// A std::bad_alloc with a description of the allocation.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string allocation) : text_(std::make_shared<const std::string>(std::move(allocation))) {}
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_;  // shared, because copying an exception must not throw
};

// Runs step(). kIo "out of memory: ..." if an allocation failed or a container exceeded its maximum length.
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
