// What the system lets this process have (ulimit), against what a job needs of it: checked when a program begins, so
// that a limit which is too low is one error that names it, instead of a fleet that waits for a connection that cannot
// be opened, or a thread that cannot be started later.
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

// How far the soft limit of open files is raised. A library changes the limits of somebody's process only as it must.
enum class RaiseFiles { kToHardLimit, kAsNeeded };

// Raises the soft limit of open files. kInvalidArgument if the hard one is below `needed`; `what` says of what they are
// made up: "2 shards and 8 workers".
Status RequireFiles(std::uint64_t needed, std::string_view what, RaiseFiles raise = RaiseFiles::kToHardLimit);

// How many files this process has open.
std::uint64_t OpenFiles();

// kInvalidArgument if the process may not have `bytes` of address space (ulimit -v), with `threads` stacks on top.
Status RequireAddressSpace(std::uint64_t bytes, std::uint64_t threads, std::string_view what);

// Why a thread could not be started or memory was not to be had: `reason`, with the limits that are set.
Error LimitError(std::string_view reason);

// Runs body(), which returns a Status. kIo with LimitError's text for what the standard library throws when a limit is
// reached: std::system_error of a thread, std::bad_alloc.
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
