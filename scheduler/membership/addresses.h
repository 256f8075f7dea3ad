// The HTTP addresses of the fleet's processes, and the file that lists them (rule N8).
//
//   Addresses addresses(store);
//   addresses.Put(Role::kWorker, 3, join.http);             // a process has joined
//   if (addresses.Write()) FormTheFleet();                  // else call it again after OnWritten
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/message.h"
#include "scheduler/state/store.h"

namespace tarn::scheduler {

// Checks that `text` is "http://HOST:PORT", with a host of letters, digits and "._-" or an IPv6 address in brackets,
// and a port other than 0. Else kInvalidArgument.
Status CheckHttpAddress(std::string_view text);

class Addresses {
 public:
  // store: outlives this object; null: there is no list.
  explicit Addresses(SchedulerStore* store) : store_(store) {}

  // Sets the address of a process, and replaces that of an earlier process of this rank. For a server, `role` is kShard
  // and `rank` that of the server. A process with an empty address serves no HTTP and is not listed. Entries of ended
  // processes remain until replaced.
  void Put(Role role, std::uint32_t rank, std::string http);

  // Starts to write the list if it has changed since the last write and no write is in progress. Returns whether the
  // last write has the current list. A failed write counts: the list is written again only after its next change.
  bool Write();
  // The store has ended a write.
  void OnWritten(const StoreWritten& written);

 private:
  SchedulerStore* store_;
  std::map<std::pair<Role, std::uint32_t>, std::string> http_;
  std::uint64_t revision_ = 0, written_ = 0;  // of the list; 0: empty, needs no file
  bool writing_ = false;
};

}  // namespace tarn::scheduler
