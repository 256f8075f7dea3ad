// Runs a worker::Client over a net::Transport: sends what the client has to send, receives messages, fires its timers
// and connects to the shards of new views. The training loop and the loop of tarn::Client both drive their client
// through it, in turns: requests to client(), Send, Wait, Accept, client().TakeEvents().
//
// Not thread-safe: one thread at a time. Wait is the only call that blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/message.h"
#include "net/transport.h"
#include "worker/client/client.h"

namespace tarn::worker {

class ClientExchange {
 public:
  static constexpr TimeUs kWaitMaxUs = 100'000;  // of one Wait

  // The transport must outlive the exchange.
  ClientExchange(const ClientOptions& options, net::Transport* transport) : client_(options), transport_(transport) {}

  // Connects to the scheduler at this address and begins to join its fleet. Once.
  Status Start(const std::string& scheduler);

  Client& client() { return client_; }
  const Client& client() const { return client_; }
  // Of the requests to client(): what the next Send sends.
  Outbox* outbox() { return &outbox_; }
  static TimeUs Now();  // monotonic

  void Send();
  // Waits for messages, up to at_most and up to the client's next timer. Accept hands them to the client and fires its
  // timers.
  void Wait(TimeUs at_most);
  void Accept();
  // Connects to the shards of a view that is new since the last call, and applies the job's lanes. True: it was new.
  Expected<bool> ConnectShards();
  // Rule N7: the error with which the loop ends when the scheduler has been silent for too long.
  Status CheckScheduler() const { return client_.CheckScheduler(Now(), scheduler_); }
  const std::string& scheduler() const { return scheduler_; }

 private:
  Client client_;
  net::Transport* transport_;
  std::string scheduler_;
  Outbox outbox_;
  std::vector<net::Received> received_;
  ViewVersion connected_view_;
};

}  // namespace tarn::worker
