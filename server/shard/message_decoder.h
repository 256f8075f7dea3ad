// Decodes a worker's message in place: copies it out of shared memory, and replaces coded keys and the numbers of key
// lists by the keys, and the values of top-k and low-rank pushes by rows (rules W2, W3, W5). Parts that cannot be
// decoded are left as they are; the handler of the message then rejects it. Not thread-safe.
#pragma once

#include "core/message.h"
#include "server/shard/key_lists.h"
#include "server/shard/senders.h"
#include "server/store/store.h"

namespace tarn::server {

class MessageDecoder {
 public:
  // All arguments outlive this object.
  MessageDecoder(const Store* rows, const Senders* senders, KeyLists* lists)
      : rows_(rows), senders_(senders), lists_(lists) {}

  // Copies the keys, and with `values` also the values, if the sender can write to their memory.
  static void TakeOver(Message* message, bool values);
  // Decodes the message, unless its sender will be rejected.
  void Decode(Message* message);

 private:
  void DecodeKeys(Incarnation worker, KeyList* keys);
  void DecodeValues(Push* push);

  const Store* rows_;
  const Senders* senders_;
  KeyLists* lists_;
};

}  // namespace tarn::server
