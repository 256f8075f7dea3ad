#include "server/shard/worker_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/limits.h"

namespace tarn::server {

void WorkerMessages::OnMessage(Peer from, Message&& message) {
  MessageDecoder::TakeOver(&message, !IsAppliedAtOnce(message));
  context_.decoder->Decode(&message);
  if (context_.rows->tier() != nullptr) {
    Maintain(false);
    if (Stopping() || context_.gate->Waits(from, message)) return;
  }
  Handle(from, &message);
}

// Whether the message is a push whose values may be read in place, in memory shared with its worker: no part of it is
// kept, and no check depends on its values.
bool WorkerMessages::IsAppliedAtOnce(const Message& message) const {
  const auto* push = std::get_if<Push>(&message.body);
  if (push == nullptr || context_.outbox->logging() || context_.rows->tier() != nullptr) return false;
  return std::ranges::all_of(push->tables, [&](const PushPart& part) {
    const TableSpec* table = context_.rows->FindTable(part.table);
    return !IsOfWholePush(part.codec) && table != nullptr && table->consistency.apply == ApplyMode::kImmediate;
  });
}

void WorkerMessages::Maintain(bool paused) {
  if (context_.rows->tier() == nullptr || !context_.stop->Check(context_.rows->Maintain(context_.other_bytes())))
    return;
  if (context_.gate->idle() || paused) return;
  for (ColdGate::Waiting& ready : context_.gate->TakeReady()) {
    if (Stopping()) return;
    context_.decoder->Decode(&ready.message);  // its sender may have been unknown when it arrived
    Handle(ready.from, &ready.message);
    ready.message = {};  // releases decoded rows
  }
}

void WorkerMessages::Handle(Peer from, Message* message) {
  if (auto status = Dispatch(from, message); !status) context_.senders->Refuse(from, message->body, status.error());
}

Status WorkerMessages::Dispatch(Peer from, Message* message) {
  const auto member = context_.senders->Check(*message);
  if (!member) return std::unexpected(member.error());
  Body& body = message->body;
  if (auto* pull = std::get_if<Pull>(&body)) return context_.pulls->OnPull(from, message->sender, std::move(*pull));
  if (const auto* push = std::get_if<Push>(&body)) return OnPush(from, *push, *message, **member);
  if (const auto* tick = std::get_if<Tick>(&body)) return OnTick(from, *tick, *message, **member);
  if (const auto* piece = std::get_if<PutBlob>(&body)) return OnPutBlob(from, *piece, *message);
  if (const auto* wanted = std::get_if<GetBlob>(&body)) return OnGetBlob(from, *wanted);
  if (std::holds_alternative<Prefetch>(body)) return {};  // only a hint for RowGate (rule T4)
  return Fail(ErrorCode::kUnsupported, fmt::format("{}: not for a shard", BodyName(body)));
}

Status WorkerMessages::OnPush(Peer from, const Push& push, const Message& message, const Cohort::Member& member) {
  const auto changed = context_.pushes->OnPush(from, message.sender, push, member);
  if (!changed) return std::unexpected(changed.error());
  if (*changed) context_.pulls->AnswerAfterPush(message.sender.incarnation);
  return {};
}

Status WorkerMessages::OnTick(Peer from, const Tick& tick, const Message& message, const Cohort::Member& member) {
  if (tick.clock > member.tick + limits::kClocksAheadMax)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("tick to {} from {}: at most {} clocks at once",
                                                         tick.clock.value, member.tick.value, limits::kClocksAheadMax));
  const bool moves = tick.clock > member.tick;
  const Incarnation worker = message.sender.incarnation;
  const bool news = context_.outbox->logging() && context_.clocks->cohort().IsNews(worker, tick);
  if (news) context_.outbox->Append(LoggedTick{worker, tick});
  context_.clocks->Tick(worker, tick, context_.step->now());
  if (moves) context_.observer->OnTick(WorkerRank(message.sender.rank), tick);
  context_.outbox->Answer(from, worker, TickAck{tick.clock}, news);
  if (moves) context_.on_tick();
  return {};
}

Status WorkerMessages::OnPutBlob(Peer from, const PutBlob& piece, const Message& message) {
  const auto answer = context_.blobs->Put(from, message.sender, piece, message.values);
  if (!answer) return std::unexpected(answer.error());
  if (*answer) context_.step->Send((*answer)->to, (*answer)->ack);
  return {};
}

// Rule K10. A blob that does not match the manifest ends the run, because the worker would continue from a different
// state.
Status WorkerMessages::OnGetBlob(Peer from, const GetBlob& wanted) {
  auto slice = context_.blobs->Get(wanted);
  if (!slice && slice.error().code == ErrorCode::kOverloaded) return {};  // the worker repeats its request
  if (!slice && slice.error().code != ErrorCode::kNotFound)
    context_.stop->Stop(slice.error().code, slice.error().message);
  if (!slice) return std::unexpected(slice.error());
  Message reply = context_.step->Make(BlobPiece{wanted.offset, slice->total, wanted.rank});
  reply.values = std::move(slice->bytes);
  context_.step->Send({from, std::move(reply)});
  return {};
}

}  // namespace tarn::server
