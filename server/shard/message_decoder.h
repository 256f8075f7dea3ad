// Decodes a worker's message in place: copies it out of shared memory, replaces coded keys and the numbers of held
// lists by the keys, and top-k values by rows (rules W2, W3, W5). Leaves what it cannot decode: the message is then
// refused when it is handled. Not thread-safe.
#pragma once

#include "core/message.h"
#include "server/shard/key_lists.h"
#include "server/shard/senders.h"
#include "server/store/store.h"

namespace tarn::server {

class MessageDecoder {
 public:
  // All outlive it.
  MessageDecoder(const Store* rows, const Senders* senders, KeyLists* lists)
      : rows_(rows), senders_(senders), lists_(lists) {}

  // Copies the keys, and with `values` the values too, if they lie in memory that the sender can write to.
  static void TakeOver(Message* message, bool values);
  // Decodes the message, unless its sender will be refused.
  void Decode(Message* message);

 private:
  void DecodeKeys(Message* message);
  void DecodeValues(Message* message);

  const Store* rows_;
  const Senders* senders_;
  KeyLists* lists_;
};

}  // namespace tarn::server
