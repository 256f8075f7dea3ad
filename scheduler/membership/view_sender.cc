#include "scheduler/membership/view_sender.h"

#include <algorithm>
#include <utility>

namespace tarn::scheduler {

ViewSender::ViewSender(Options options, const CurrentView* view) : options_(std::move(options)), view_(view) {}

void ViewSender::Welcome(const ShardNode& shard, const Mailer& mail) const {
  LogOrder log = options_.log;
  log.at_least = shard.logged;
  mail.Send(shard.peer, tarn::Welcome{.nonce = shard.nonce,
                                      .rank = shard.shard.value,
                                      .incarnation = shard.incarnation,
                                      .start_clock = options_.start_clock,
                                      .job_text = options_.job_text,
                                      .resume_directory = options_.resume_directory,
                                      .view = view(),
                                      .log = log});
}

void ViewSender::Welcome(const WorkerNode& worker, const Mailer& mail) const {
  mail.Send(worker.peer, tarn::Welcome{.nonce = worker.nonce,
                                       .rank = worker.rank.value,
                                       .incarnation = worker.incarnation,
                                       .start_clock = worker.join,
                                       .job_text = options_.job_text,
                                       .resume_directory = options_.resume_directory,
                                       .view = view(),
                                       .blobs = worker.continues ? options_.blobs : std::vector<BlobSize>()});
}

void ViewSender::Acknowledge(Peer peer, ViewVersion theirs, ViewSent* sent, TimeUs now, const Mailer& mail) const {
  mail.Send(peer, HeartbeatAck{.view = view().version});
  const TimeUs at = SentAt(*sent);
  if (theirs >= view().version || (at != 0 && now - at < options_.heartbeat_us / 4)) return;
  mail.Send(peer, ViewUpdate{view()});
  NoteSent(sent, now);
}

void ViewSender::SendIfDue(const ShardNode& shard, ViewSent* sent, TimeUs now, const Mailer& mail) const {
  if (!IsDue(shard.confirmed, *sent, now)) return;
  // Until a shard has confirmed any view, its Welcome may have been lost.
  if (shard.confirmed == ViewVersion(0))
    Welcome(shard, mail);
  else
    mail.Send(shard.peer, ViewUpdate{view()});
  NoteSent(sent, now);
}

void ViewSender::SendIfDue(WorkerNode* worker, ViewVersion confirmed, TimeUs now, const Mailer& mail) const {
  if (!worker->live()) return;
  if (!worker->welcomed && worker->live_version <= confirmed) {
    worker->welcomed = true;
    worker->heard = now;  // from now on its lease counts, whenever it has last joined
    Welcome(*worker, mail);
    NoteSent(&worker->view_sent, now);
  } else if (worker->welcomed && IsDue(worker->confirmed, worker->view_sent, now)) {
    mail.Send(worker->peer, ViewUpdate{view()});
    NoteSent(&worker->view_sent, now);
  }
}

bool ViewSender::IsDue(ViewVersion confirmed, const ViewSent& sent, TimeUs now) const {
  const TimeUs at = SentAt(sent);
  return confirmed < view().version && (at == 0 || now - at >= options_.heartbeat_us);
}

void ViewSender::NoteSent(ViewSent* sent, TimeUs now) const { *sent = {view().version, std::max<TimeUs>(now, 1)}; }

}  // namespace tarn::scheduler
