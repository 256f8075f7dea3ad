// Compares the limits of this process (ulimit) with the requirements of a job. Programs check them at their start, so
// that a limit that is too low gives one error that names the limit. Otherwise a fleet would wait for a connection that
// cannot be opened, or a thread could not be started later.
//
// Any thread; RequireFiles changes the process's own limit.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace tarn {

// How far the soft limit of open files is raised. A library raises the limit of its host process only if necessary.
enum class RaiseFiles { kToHardLimit, kAsNeeded };

// Raises the soft limit of open files. kInvalidArgument if the hard limit is below `needed`; `what` names the
// components of that number: "2 shards and 8 workers".
Status RequireFiles(std::uint64_t needed, std::string_view what, RaiseFiles raise = RaiseFiles::kToHardLimit);

// The number of open files of this process: its soft limit if no descriptor is left to count them, 0 if they cannot be
// counted (no /proc).
std::uint64_t OpenFiles();

// kInvalidArgument if the limit of address space (ulimit -v) is below `bytes` plus `threads` stacks.
Status RequireAddressSpace(std::uint64_t bytes, std::uint64_t threads, std::string_view what);

// Error message for a thread that could not be started or an allocation that failed: `reason`, with the limits in
// effect.
Error LimitError(std::string_view reason);

// Runs body(), which returns a Status. Turns the exceptions of the standard library for a reached limit
// (std::system_error of a thread, std::bad_alloc) into kIo with LimitError's text.
template <typename Body>
Status CatchLimits(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::system_error& e) {
    return std::unexpected(LimitError(std::string("cannot start a thread: ") + e.what()));
  } catch (const std::bad_alloc&) {
    return std::unexpected(LimitError("out of memory"));
  }
}

}  // namespace tarn
