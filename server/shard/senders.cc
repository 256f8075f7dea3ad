#include "server/shard/senders.h"

#include <fmt/format.h>

namespace tarn::server {

Expected<const Cohort::Member*> Senders::Check(const Message& message) const {
  if (message.job != step_->job())
    return Fail(ErrorCode::kWrongJob,
                fmt::format("the message is of job {:016x}, expected {:016x}", message.job, step_->job()));
  if (message.sender.role != Role::kWorker)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: not from a worker", BodyName(message.body)));
  if (message.epoch != step_->epoch())
    return Fail(ErrorCode::kStaleEpoch,
                fmt::format("the message has route epoch {}, expected {}", message.epoch.value, step_->epoch().value));
  return cohort_->Check(message.sender);
}

void Senders::Refuse(Peer to, const Body& body, const Error& error) {
  switch (error.code) {
    case ErrorCode::kStaleEpoch: ++counters_->refused_epoch; break;
    case ErrorCode::kFenced: ++counters_->refused_fenced; break;
    default: ++counters_->refused_other;
  }
  auto refuse = [&](RequestId request) {
    step_->Send(to, ErrorReply{request, error.code, error.message, step_->epoch()});
  };
  if (const auto* pull = std::get_if<Pull>(&body)) refuse(pull->request);
  if (const auto* push = std::get_if<Push>(&body)) refuse(push->request);
  if (std::holds_alternative<Tick>(body)) refuse(RequestId(0));
}

}  // namespace tarn::server
