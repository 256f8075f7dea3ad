#include "server/shard/message_decoder.h"

#include "core/limits.h"
#include "server/shard/data_message.h"

namespace tarn::server {

namespace {

// Calls visit(keys) for the keys of each table of a request.
template <typename Visit>
void ForEachKeyList(Body* body, const Visit& visit) {
  if (auto* pull = std::get_if<Pull>(body))
    for (PullPart& table : pull->tables) visit(&table.keys);
  if (auto* push = std::get_if<Push>(body))
    for (PushPart& table : push->tables) visit(&table.keys);
  if (auto* prefetch = std::get_if<Prefetch>(body)) visit(&prefetch->keys);
}

}  // namespace

// The worker can write to shared memory while the shard reads it. Keys are therefore always copied before they are
// decoded and checked: a key that changed after its check would cause a write outside its partition's rows.
void MessageDecoder::TakeOver(Message* message, bool values) {
  const auto copy = [](Buffer& payload) {
    if (payload.lent()) payload = Buffer::Copy(payload.data(), payload.size());
  };
  ForEachPayload(*message, copy, [&](Buffer& payload) {
    if (values) copy(payload);
  });
}

// Bounds the memory of decoding, because decoded keys and values may be much larger than the message: the keys of all
// tables, with the message, fit in kMessageBytesMax; the decoded values of all tables fit in kFrameBytesMax.
void MessageDecoder::Decode(Message* message) {
  std::uint64_t keys = 0;
  ForEachKeyList(&message->body, [&keys](const KeyList* list) { keys += list->count; });
  if (keys == 0 || !senders_->Check(*message)) return;
  if (keys * sizeof(Key) + PayloadBytes(*message) <= limits::kMessageBytesMax)
    ForEachKeyList(&message->body, [&](KeyList* list) { DecodeKeys(message->sender.incarnation, list); });
  if (auto* push = std::get_if<Push>(&message->body)) DecodeValues(push);
}

void MessageDecoder::DecodeValues(Push* push) {
  std::size_t left = limits::kFrameBytesMax;
  for (PushPart& table : push->tables) {
    const TableSpec* spec = rows_->FindTable(table.table);
    if (spec == nullptr || !IsOfWholePush(table.codec)) continue;
    const std::size_t bytes = std::size_t{table.keys.count} * spec->dim * sizeof(float);
    if (bytes > left) return;
    left -= bytes;
    DecodeWholePush(*spec, &table);
  }
}

void MessageDecoder::DecodeKeys(Incarnation worker, KeyList* keys) {
  DecodeDelta(keys);
  if (keys->codec != KeyCodec::kHeld) return;
  const KeyLists::List* held = lists_->Find(worker, keys->list);
  if (held == nullptr || held->count != keys->count) return;
  keys->codec = held->codec;
  keys->first_key = held->first_key;
  keys->list = 0;  // the shard already has the list
  keys->frame = held->frame;
}

}  // namespace tarn::server
