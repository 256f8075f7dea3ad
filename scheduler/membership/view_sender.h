// Sends the view: as a Welcome to nodes that may begin, in answers to heartbeats, and as updates to nodes that have not
// confirmed the newest one, at once and after each heartbeat period (rules N1 to N3).
#pragma once

#include <cstdint>
#include <string>

#include "core/message.h"
#include "scheduler/membership/current_view.h"
#include "scheduler/membership/mailer.h"
#include "scheduler/membership/nodes.h"

namespace tarn::scheduler {

class ViewSender {
 public:
  struct Options {
    TimeUs heartbeat_us = 0;
    std::string job_text, resume_directory;
    std::vector<BlobSize> blobs;  // for workers that continue from them
    Clock start_clock;            // for shards
    LogOrder log;                 // for shards; at_least is set per shard
  };
  // `view` outlives this object.
  ViewSender(Options options, const CurrentView* view);

  void Welcome(const ShardNode& shard, const Mailer& mail) const;
  void Welcome(const WorkerNode& worker, const Mailer& mail) const;
  // Answers the heartbeat of a node whose view is `theirs`. Also sends the newest view if `theirs` is older, unless it
  // was sent less than a quarter of a heartbeat period ago.
  void Acknowledge(Peer peer, ViewVersion theirs, ViewSent* sent, TimeUs now, const Mailer& mail) const;
  // Sends the newest view to a shard that has not confirmed it: as a Welcome if the shard has not confirmed any view.
  void SendIfDue(const ShardNode& shard, ViewSent* sent, TimeUs now, const Mailer& mail) const;
  // Sends to a live worker. The first message is a Welcome, sent when every shard has confirmed (`confirmed`) the view
  // that made the worker live.
  void SendIfDue(WorkerNode* worker, ViewVersion confirmed, TimeUs now, const Mailer& mail) const;

 private:
  const View& view() const { return view_->get(); }
  // Time when the newest view was sent; 0: not sent.
  TimeUs SentAt(const ViewSent& sent) const { return sent.version == view().version ? sent.at : 0; }
  bool IsDue(ViewVersion confirmed, const ViewSent& sent, TimeUs now) const;
  void NoteSent(ViewSent* sent, TimeUs now) const;

  Options options_;
  const CurrentView* view_;
};

}  // namespace tarn::scheduler
