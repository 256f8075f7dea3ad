// A shard's link to its scheduler: sends Join until it receives Welcome, and stores the time of the scheduler's last
// message and of the next heartbeat (rules N1, N4, N5). Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/message.h"
#include "server/shard/shard_step.h"

namespace tarn::server {

class SchedulerLink {
 public:
  // Fields of the Join message.
  struct Options {
    std::uint64_t nonce = 0;
    std::string endpoint;
    std::uint32_t shards_per_server = 0;
    std::string http;
  };
  // `step` outlives the link.
  SchedulerLink(Options options, ShardStep* step) : options_(std::move(options)), step_(step) {}

  // Sends the first Join.
  void Start();
  void SendJoin();

  // Whether the message comes from the scheduler and, once the shard knows its job, belongs to that job.
  bool IsFromScheduler(Peer from, const Message& message) const;
  // Notes that a message of the scheduler arrived in this step.
  void OnHeard() { heard_ = step_->now(); }
  // Whether the Welcome answers a Join of this process.
  bool IsMine(const Welcome& welcome) const { return welcome.nonce == options_.nonce; }
  // Sets the periods of the job.
  void SetPeriods(TimeUs heartbeat_us, TimeUs lease_us);
  // Notes that the shard has loaded its rows and serves workers.
  void SetJoined() { joined_ = true; }
  bool joined() const { return joined_; }

  // Whether no message has arrived from the scheduler for a lease, so that it may have declared the shard dead (rule
  // N5).
  bool Paused() const { return step_->now() - heard_ > lease_us_; }
  TimeUs heard() const { return heard_; }
  TimeUs lease_us() const { return lease_us_; }

  // When the next Join or heartbeat is due. OnBeat: one was sent in this step.
  TimeUs next_beat() const { return next_beat_; }
  void OnBeat() { next_beat_ = step_->now() + heartbeat_us_; }

 private:
  static constexpr TimeUs kJoinPeriodUs = 500'000;
  static constexpr TimeUs kLeaseBeforeWelcomeUs = 30'000'000;

  Options options_;
  ShardStep* step_;
  bool joined_ = false;
  TimeUs heartbeat_us_ = kJoinPeriodUs;
  TimeUs lease_us_ = kLeaseBeforeWelcomeUs;
  TimeUs heard_ = 0;
  TimeUs next_beat_ = 0;
};

}  // namespace tarn::server
