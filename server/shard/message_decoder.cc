#include "server/shard/message_decoder.h"

#include "core/limits.h"
#include "server/shard/data_message.h"

namespace tarn::server {

namespace {

KeyList* KeysOf(Body* body) {
  if (auto* pull = std::get_if<Pull>(body)) return &pull->keys;
  if (auto* push = std::get_if<Push>(body)) return &push->keys;
  if (auto* both = std::get_if<PushPull>(body)) return &both->push.keys;
  if (auto* soon = std::get_if<Prefetch>(body)) return &soon->keys;
  return nullptr;
}

Push* PushOf(Body* body) {
  if (auto* both = std::get_if<PushPull>(body)) return &both->push;
  return std::get_if<Push>(body);
}

}  // namespace

// The worker can write to shared memory while the shard reads it. So keys are always copied before they are decoded and
// checked: a key that changed after its check would cause a write outside its partition's rows.
void MessageDecoder::TakeOver(Message* message, bool values) {
  const auto copy = [](Buffer* payload) {
    if (payload->lent()) *payload = Buffer::Copy(payload->data(), payload->size());
  };
  copy(&message->keys);
  if (values) copy(&message->values);
}

void MessageDecoder::Decode(Message* message) {
  DecodeKeys(message);
  DecodeValues(message);
}

void MessageDecoder::DecodeKeys(Message* message) {
  KeyList* keys = KeysOf(&message->body);
  if (keys == nullptr || !senders_->Check(*message)) return;
  if (keys->count * sizeof(Key) + message->values.size() > limits::kMessageBytesMax) return;
  DecodeDelta(keys, &message->keys);
  if (keys->codec != KeyCodec::kHeld) return;
  const KeyLists::List* held = lists_->Find(message->sender.incarnation, keys->list);
  if (held == nullptr || held->count != keys->count) return;
  keys->codec = held->codec;
  keys->first_key = held->first_key;
  keys->list = 0;  // the shard already has the list
  message->keys = held->frame;
}

void MessageDecoder::DecodeValues(Message* message) {
  Push* push = PushOf(&message->body);
  if (push == nullptr || !IsOfWholePush(push->codec) || !senders_->Check(*message)) return;
  if (const TableSpec* table = rows_->FindTable(push->table)) DecodeWholePush(*table, push, &message->values);
}

}  // namespace tarn::server
