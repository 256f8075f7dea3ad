// Answers workers' LeaseRequests (rules D1-D6): processes the reports, and answers each request when possible. A
// repeated request gets the same answer. The caller sends the answers.
//
//   LeaseDesk desk(job, start_clock, &notes);
//   LeaseDesk::Heard heard = desk.OnRequest(rank, worker, clock, request);
//   for (LeaseDesk::Answer& answer : desk.Answers(LeaseSupply::kTraining, is_live)) ...
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/job/job.h"
#include "core/message.h"
#include "scheduler/leases/lease_requests.h"
#include "scheduler/leases/leases.h"
#include "scheduler/progress/notes.h"

namespace tarn::scheduler {

// What workers that request data can get.
enum class LeaseSupply : std::uint8_t {
  kTraining,
  kEvaluation,
  kJumps,     // no data now, only the order to tick to the ceiling
  kNone,      // the run stops, and no new data is granted (rule K11)
  kFinished,  // there is no more data
};

class LeaseDesk {
 public:
  // `notes` outlives this object.
  LeaseDesk(const Job& job, Clock start_clock, Notes* notes);

  struct Heard {
    std::optional<Error> ends_run;    // the run cannot continue
    std::optional<Error> refuses;     // the worker is rejected
    std::optional<LeaseReply> reply;  // set if the request is a repetition
  };
  // `clock`: of the worker, for the error if training has diverged.
  Heard OnRequest(WorkerRank rank, Incarnation worker, Clock clock, const LeaseRequest& request);

  struct Answer {
    Incarnation worker;
    LeaseReply reply;
  };
  // The answers that are due, to live workers.
  std::vector<Answer> Answers(LeaseSupply supply, const std::function<bool(Incarnation)>& is_live);

  // The worker has ended; see Leases::End.
  void End(Incarnation worker, const DataPosition& position, Clock end, bool take_back);

  Leases& leases() { return leases_; }
  const Leases& leases() const { return leases_; }

 private:
  std::optional<LeaseReply> TryAnswer(Incarnation worker, std::uint32_t want, LeaseSupply supply);
  void WarnOfIdleWorkers();

  Leases leases_;
  LeaseRequests requests_;
  Notes* notes_;
  std::uint32_t workers_;       // of the job
  std::uint64_t idle_for_ = 0;  // the size of splits for which WarnOfIdleWorkers was called last
};

}  // namespace tarn::scheduler
