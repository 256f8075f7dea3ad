#!/usr/bin/env python3
"""Plants known bugs into a copy of the sources and shows how many seeds the simulator takes to find each.

  tests/sim/mutants.py              every bug, one after the other
  tests/sim/mutants.py ssp-off-by-one bsp-off-by-one
  tests/sim/mutants.py --check      only that every bug can still be planted

Builds in build/mutants (with ccache, so that only what a bug touches is compiled). Exit status 1 if one is not found.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build/mutants"
FOLDERS = ("CMakeLists.txt", "CMakePresets.json", "cmake", "core", "examples", "kernels", "net", "schemas", "scheduler", "server", "sim",
           "serving", "tests", "tools", "worker", "bench")

# name, file, text that occurs there once, its replacement
MUTANTS = [
    ("positions-of-a-copy-after-it", "scheduler/checkpoints/checkpoint_coordinator.cc",
     "  } else {  // the clock of the cut: a program skips the data before it\n",
     "  } else {\n    manifest = context_.manifests->Make(membership.workers().LivePositions(), true, moment.now);\n"),
    ("positions-after-the-clock", "scheduler/checkpoints/checkpoint_coordinator.cc",
     "    for (const auto& [id, part] : cut.workers) at[id] = part.position;\n",
     "    at = membership.workers().LivePositions();\n"),
    ("ack-without-apply", "server/shard/pushes.cc",
     "case Watermarks::Order::kBeyond: ++context_.counters->pushes_out_of_order; return ErrorCode::kOutOfOrder;",
     "case Watermarks::Order::kBeyond: ++context_.counters->pushes_out_of_order; return ErrorCode::kOk;"),
    ("ssp-off-by-one", "server/clock/ssp.cc",
     "std::min<std::uint64_t>(use.value, consistency().staleness)",
     "std::min<std::uint64_t>(use.value, consistency().staleness + 1)"),
    ("bsp-off-by-one", "server/clock/bsp.cc",
     "const override { return use; }",
     "const override { return Clock(use.value == 0 ? 0 : use.value - 1); }"),
    ("arrival-order-sum", "server/clock/clock_buckets.cc",
     "return std::tuple(c.table, c.partition, c.rank, c.incarnation, c.sequence); }",
     "return std::tuple(c.table, c.partition); }"),
    ("forgotten-watermark", "server/store/watermarks.h",
     "if (sequence <= watermark) return Order::kRepeated;",
     "if (sequence < watermark) return Order::kRepeated;\n    if (sequence == watermark) return Order::kNext;"),
    ("fenced-worker-is-served", "server/clock/cohort.cc",
     "if (member.entry.state != WorkerState::kLive)",
     "if (member.entry.state == WorkerState::kEnded)"),
    ("fenced-worker-gets-the-rows-it-waited-for", "server/shard/fleet_view.cc",
     "  for (const Incarnation worker : changes.refused) Drop(worker);\n", ""),
    ("dead-pushes-not-voided", "server/shard/clocks.cc",
     "  for (const auto& [worker, end] : changes.ended) Discard(worker, end);\n", ""),
    ("fencing-worker-not-waited-for", "server/clock/cohort.h",
     "return member.entry.state != WorkerState::kEnded; }", "return member.entry.state == WorkerState::kLive; }"),
    ("closed-one-clock-early", "server/clock/consistency_policy.h",
     "    return clock < OpenClock(cohort);\n  }\n  // Which", "    return clock <= OpenClock(cohort);\n  }\n  // Which"),
    ("answers-before-closing", "server/shard/shard.cc",
     "  if (stop_.step_failed() || !stop_.Check(parts_->clocks.CloseReady())) return;\n  parts_->pulls.AnswerOpened();",
     "  parts_->pulls.AnswerOpened();\n  stop_.Check(parts_->clocks.CloseReady());"),
    ("own-pushes-not-waited-for", "server/shard/pulls.cc",
     "if (parked.clock_open && HasOwnPushes(parked)) return Answer(parked);",
     "if (parked.clock_open) return Answer(parked);"),
    ("cohort-of-the-living-only", "server/clock/cohort.cc",
     "size += member.entry.InCohort(t) ? 1 : 0;",
     "size += member.entry.InCohort(t) && member.entry.state == WorkerState::kLive ? 1 : 0;"),
    ("tick-before-acknowledgements", "worker/client/client_ticks.cc",
     "clock > bound_.limit(asked_) || !pushes_->AllAckedBefore(clock)", "clock > bound_.limit(asked_)"),
    ("proposal-ignored", "worker/client/tick_bound.h",
     "return open_ ? clock_ + kProposalSlack : Clock(UINT64_MAX);", "return Clock(UINT64_MAX);"),
    ("lost-push-not-repeated", "worker/client/client_pushes.cc",
     "queue.due <= context_->now ? Repeat(&queue) : SetDue(&queue, queue.due);",
     "SetDue(&queue, queue.due <= context_->now ? kNever : queue.due);"),
    ("sequence-restarts-at-a-repeat", "worker/client/client_pushes.cc",
     "section.sequence = log.issued = Sequence(log.issued.value + 1);",
     "section.sequence = log.issued = Sequence(std::max(log.issued.value, log.acked.value) + 1 + "
     "(log.issued.value % 97 == 96));"),
    ("verdict-of-the-lowest-tick", "scheduler/membership/fencing.cc",
     "if (tick.tick > highest.tick) highest = tick;",
     "if (highest.tick.value == 0 || tick.tick < highest.tick) highest = tick;"),
    ("verdict-before-all-shards", "scheduler/membership/fencing.cc",
     "if (fenced.reports.size() == shards_) ready.push_back(worker);",
     "if (!fenced.reports.empty()) ready.push_back(worker);"),
    ("dropped-lease", "scheduler/leases/splits.cc",
     "    else\n      Free(record.split);\n  }\n  open_.erase(owner);",
     "    else if (split.trained == 0)\n      Free(record.split);\n  }\n  open_.erase(owner);"),
    ("lease-restarts-at-its-beginning", "scheduler/leases/splits.cc",
     "if (id == position.lease) split.trained = std::clamp(position.rows, split.trained, split.rows);", ""),
    ("join-into-an-open-clock", "scheduler/membership/agreement.cc",
     "return highest + kProposalSlack + 1;", "return highest;"),
    ("joiner-not-announced", "scheduler/membership/agreement.cc",
     "if (stage_ != Stage::kConfirming || !membership_->shards().Confirmed(version_)) return false;",
     "if (stage_ != Stage::kConfirming) return false;"),
    ("residual-forgotten", "worker/client/residuals.cc",
     "    kernels::Add(dim, kept, to);\n", ""),
    ("residual-sent-and-kept", "worker/client/residuals.cc",
     "    if (goes)\n      table->Erase(plan.keys[i]);\n    else\n", ""),
    ("crowded-out-and-lost", "worker/client/residuals.cc",
     "crowded.push_back({PartitionOf(position(key), bits), key, {row, row + spec.dim}});", "(void)row;"),
    ("blob-of-a-later-clock", "worker/client/client_blob.cc",
     "const bool reached = !order.at_clock || asked >= order.clock;",
     "const bool reached = !order.at_clock || asked > order.clock;"),
    ("blob-of-an-earlier-clock", "worker/client/client_blob.cc",
     "const bool reached = !order.at_clock || asked >= order.clock;", "const bool reached = true;"),
    ("blob-not-repeated", "worker/client/client_blob.cc",
     "if (put_) repeat(&*put_, [this](Put* put) { Send(put); });", "if (put_) put_->repeats.due = kNever;"),
    ("blob-piece-skipped", "server/shard/blob_desk.cc",
     "if (blob.whole() || piece.offset != blob.received) return AnswerOf(id, blob);",
     "if (blob.whole()) return AnswerOf(id, blob);"),
    ("blob-not-waited-for", "scheduler/checkpoints/cut.cc",
     "return cut.order.at_clock ? worker.join <= cut.order.clock :",
     "return cut.order.at_clock ? worker.join > cut.order.clock :"),
    ("welcome-before-the-list-of-addresses", "scheduler/membership/membership.cc",
     "|| !addresses_.Write()) return false;",
     "|| (addresses_.Write(), false)) return false;"),
    ("blob-not-given-back", "scheduler/membership/membership.cc",
     "    workers_.SetContinues(id);\n", ""),
    ("blob-given-to-a-replacement", "scheduler/membership/membership.cc",
     "    MakeLive(worker, join);\n    admitted.push_back(worker);\n",
     "    MakeLive(worker, join);\n    admitted.push_back(worker);\n"
     "    workers_.SetContinues(worker);\n"),
    ("program-goes-on-before-the-clock-is-known", "worker/client/client.cc",
     "return control.awaits_leases() || data.ticks()->bound().Undecided(data.ticks()->asked());",
     "return control.awaits_leases();"),
    ("state-one-step-behind-the-drain", "worker/client/client_blob.h",
     "bool MayBeMidClock() const { return keeps_ && saver_ == nullptr; }",
     "bool MayBeMidClock() const { return false; }"),
    ("state-of-a-program-left-out", "worker/client/client_blob.cc", "if (due && !keeps_) Take(asked, {});",
     "if (due) Take(asked, {});"),
    ("drain-that-waits-for-rows-of-the-drained", "scheduler/checkpoints/checkpoint_coordinator.h",
     "return options_.at_clock || (options_.at_clock_for_programs && ProgramsKeepState());",
     "return options_.at_clock;"),
    ("piece-of-another-blob-taken", "worker/client/client_blob.cc", "piece.rank != get_->rank.value || ", ""),
    ("state-of-another-rank", "server/shard/blob_desk.cc",
     "return store_->Read(resumed_directory_, WorkerRank(wanted.rank), wanted.offset,",
     "return store_->Read(resumed_directory_, WorkerRank(wanted.rank == 0 ? 1 : wanted.rank), wanted.offset,"),
    ("push-behind-the-cut-applied", "server/shard/shard_cuts.h",
     "return !pending_ || !pending_->at_clock || clock < pending_->clock;", "return clock.value + 1 > 0;"),
    ("push-behind-the-proposal-sent", "worker/client/client_data.cc", "return ticks_.MayPush(clock);", "return clock.value + 1 > 0;"),
    ("push-behind-the-drain-sent", "worker/client/tick_bound.h",
     "return drains_ && drain_to_ ? clock < *drain_to_ : clock <= limit(asked);", "return clock <= limit(asked);"),
    ("drained-before-acknowledgements", "worker/client/tick_bound.cc", "|| acked < *drain_to_ ||", "||"),
    ("push-after-the-last-cut", "server/shard/shard_cuts.h",
     "return !last_ || (last_->at_clock && clock < last_->clock); }", "return true; }"),
    ("no-checkpoint-after-the-last-epoch", "scheduler/epochs/epochs.cc",
     "if (!facts.state_is_cut)", "if (!facts.state_is_cut && schedule_.finished().size() < 2)"),
    ("stop-without-a-checkpoint", "scheduler/impl.cc",
     "if (setup_.keeps_checkpoints() && AnythingDone())", "if (setup_.keeps_checkpoints() && !AnythingDone())"),
    ("first-stop-writes-no-checkpoint", "scheduler/impl.cc",
     "if (setup_.keeps_checkpoints() && AnythingDone())",
     "if (setup_.keeps_checkpoints() && AnythingDone() && (cuts_.CutsAtClock() || view().checkpoint.id.value != 0))"),
    ("stop-cut-before-drained", "scheduler/membership/agreement.cc",
     "if (!AllDrained() && !late) return std::nullopt;", "if (!AllReported() && !late) return std::nullopt;"),
    ("drain-of-half-a-clock", "worker/client/tick_bound.cc", "if (pushed_ != asked && !mid_clock) drain_to_ = asked;",
     "if (!mid_clock) drain_to_ = asked;"),
    ("resume-chooses-other-splits-in-a-partly-trained-epoch", "scheduler/leases/leases.cc",
     "if (untrained) data_.ChooseSplitRows();", "data_.ChooseSplitRows();"),
    ("manifest-without-all-shards", "scheduler/checkpoints/cut.cc",
     "if (cut.shards.size() != shards) return true;", ""),
    ("abandoned-directory-removed-at-once", "scheduler/membership/shards.cc",
     "return !Confirmed(version) || Writes(id);",
     "return version.value == 0 && id.value == 0;"),
    ("row-not-copied-first", "server/store/dense_fragment.cc",
     "  cut_.KeepFirst(index, key, row, [&row] { return row; });\n", ""),
    ("sparse-row-not-copied-first", "server/store/sparse_fragment.cc",
     "    KeepFirst(number, key);\n    if (table_.has_life()) {\n", "    if (table_.has_life()) {\n"),
    ("rows-copied-early-lost", "server/store/fragment_cut.cc",
     "      out->push_back({table_.id(), std::move(chunks.back())});\n",
     "      if (handed < bytes) out->push_back({table_.id(), std::move(chunks.back())});\n"),
    ("walk-ends-with-its-bucket", "server/store/row_index.h",
     "if (n >= end - first && bucket.used < kBucketKeys) break;", "if (n >= end - first) break;"),
    ("rows-inserted-after-the-cut-saved", "server/store/sparse_fragment.cc",
     "  BeginCutOf(rows_.NumberEnd(), life_.verdicts());", "  BeginCutOf(~std::uint32_t{0}, life_.verdicts());"),
    ("abandoned-cut-goes-on", "server/shard/shard_cuts.cc",
     "if (cut_ && cut_->order.id != order.id) Abandon();", ""),
    ("failed-part-ends-the-job", "server/shard/shard_cuts.cc",
     "  part_ = std::move(part);\n  SendPart();\n",
     "  part_ = std::move(part);\n  SendPart();\n  if (part_->code == ErrorCode::kIo) context_.stop->Stop(part_->code, part_->message);\n"),
    ("failed-best-checkpoint-ends-the-job", "scheduler/advance.cc",
     "if (end.failed && end.reason > CutReason::kBest)", "if (end.failed && end.reason >= CutReason::kBest)"),
    ("failed-periodic-checkpoint-ends-the-job", "scheduler/advance.cc",
     "if (end.reason != CutReason::kBest) return;",
     "if (end.failed && end.reason < CutReason::kBest) return Fail(end.failed->code, end.failed->message, now, out);\n"
     "  if (end.reason != CutReason::kBest) return;"),
    ("failed-part-taken-back", "server/shard/shard_cuts.cc",
     "  if (part_ && part_->id == part.id && part_->code != ErrorCode::kOk) return;\n", ""),
    ("slice-without-room", "server/shard/shard_cuts.cc",
     "if (cut_ && context_.step->now() >= next_slice_ && HasRoom()) Continue();",
     "if (cut_ && context_.step->now() >= next_slice_ && !context_.rows->cut().waits()) Continue();"),
    ("acknowledged-before-the-sync", "server/shard/durable_outbox.cc",
     "if (IsDurable()) return step_->Send(to, std::move(body));\n  held_.AddAnswer(",
     "return step_->Send(to, std::move(body));\n  held_.AddAnswer("),
    ("heartbeat-before-the-sync", "server/shard/shard.cc",
     "outbox_.SendHeartbeat(std::move(beat));", "step_.Send(kSchedulerPeer, std::move(beat));"),
    ("silent-while-the-disk-is", "server/shard/durable_outbox.cc",
     "  else\n    step_->Send(kSchedulerPeer, last_heartbeat_.value_or(Heartbeat()));",
     "  else\n    (void)0;"),
    ("tick-acknowledged-before-the-sync", "server/shard/worker_messages.cc",
     "context_.outbox->Answer(from, worker, TickAck{tick.clock}, news);",
     "context_.step->Send(from, TickAck{tick.clock});"),
    ("tick-not-logged", "server/shard/worker_messages.cc",
     "if (news) context_.outbox->Append(",
     "if (context_.outbox->logging() && tick.clock.value % 5 != 0) context_.outbox->Append("),
    ("written-is-taken-for-durable", "sim/disks/memory_shard_log.cc",
     "return writer_->durable();", "return writer_->last();"),
    ("segment-dropped-too-early", "server/shard/durable_outbox.cc",
     "if (view.whole <= dropped_before_) return;\n  dropped_before_ = view.whole;\n  log_->DropBefore(view.whole);",
     "if (view.checkpoint.id.value != 0) log_->DropBefore(view.checkpoint.id);\n  if (newest_order.value != 0) log_->DropBefore(newest_order);"),
    ("watermarks-not-restored", "server/shard/log_replay.cc",
     "  TARN_RETURN_IF_ERROR(RestoreWatermarks(head.watermarks, context_.rows));\n",
     "  if (head.view.version.value % 2 == 0) TARN_RETURN_IF_ERROR(RestoreWatermarks(head.watermarks, context_.rows));\n"),
    ("gathered-not-restored", "server/shard/pushes.cc",
     "  Gather(part, all);\n", ""),
    ("clocks-not-restored", "server/shard/log_replay.cc",
     "it->second = {it->second.entry, m.tick, m.position, m.pushed, m.earlier};",
     "it->second = {it->second.entry, it->second.entry.join, {}, m.pushed, {}};"),
    ("clocks-not-closed-in-a-replay", "server/shard/log_replay.cc",
     "context_.clocks->Tick(logged.incarnation, logged.tick);\n  return CloseReady();",
     "context_.clocks->Tick(logged.incarnation, logged.tick);\n  return {};"),
    ("record-left-out-of-a-replay", "server/shard/log_replay.cc",
     "if (const auto* push = std::get_if<LoggedPush>(&input)) return context_.pushes->Replay(*push);",
     "if (const auto* push = std::get_if<LoggedPush>(&input))\n    return push->push.keys.count % 7 == 6 ? Status() : context_.pushes->Replay(*push);"),
    ("recovered-from-an-older-checkpoint", "scheduler/checkpoints/checkpoint_coordinator.cc",
     "state->whole_directory = whole_.directory;", "state->whole_directory = whole_.id.value > 1 ? \"\" : whole_.directory;"),
    ("leases-not-written", "scheduler/run_record.cc",
     "HashCombine(membership.view().version.value, context_.leases->revision());",
     "HashCombine(membership.view().version.value, 0);"),
    ("view-told-before-it-is-written", "scheduler/run_record.cc",
     "HashCombine(membership.view().version.value, context_.leases->revision());",
     "HashCombine(0, context_.leases->revision());"),
    ("lease-granted-before-its-state", "scheduler/state/state_gate.cc",
     "if (durable() || Is<HeartbeatAck>(body)) return true;",
     "if (durable() || Is<HeartbeatAck>(body) || Is<LeaseReply>(body)) return true;"),
    ("view-told-before-its-state", "scheduler/state/state_gate.cc",
     "if (durable() || Is<HeartbeatAck>(body)) return true;",
     "if (durable() || Is<HeartbeatAck>(body) || Is<ViewUpdate>(body) || Is<Welcome>(body)) return true;"),
    ("state-taken-for-durable-once-begun", "scheduler/state/state_gate.h",
     "return durable_ == newest_; }", "return durable_ == newest_ || writing_ == newest_; }"),
    ("failed-state-taken-for-durable", "scheduler/state/state_gate.cc",
     "  writing_ = 0;\n  ++failures_;\n", "  durable_ = std::exchange(writing_, 0);\n  ++failures_;\n"),
    ("failed-state-not-written-anew", "scheduler/state/state_gate.cc",
     "not_before_ = now + kPauseUs;", "not_before_ = now + 1'000'000'000'000'000;"),
    ("held-until-a-later-state", "scheduler/state/state_gate.cc",
     "Held& held = writing_ == newest_ ? leaving_ : waiting_;", "Held& held = leaving_;"),
    ("heartbeats-wait-for-the-disk", "scheduler/state/state_gate.cc",
     "if (durable() || Is<HeartbeatAck>(body)) return true;", "if (durable()) return true;"),
    ("manifest-not-waited-for", "scheduler/checkpoints/checkpoint_coordinator.cc",
     "  context_.store->WriteManifest(cut.order.id, cut.order.directory, manifest);\n  return std::nullopt;",
     "  context_.store->WriteManifest(cut.order.id, cut.order.directory, Manifest(manifest));\n  return Complete(mail);"),
    ("outdated-removed-before-the-state", "scheduler/impl.cc",
     "    state_.Write(state, now);\n", "    state_.Write(state, now);\n    cuts_.removal().OnStateWritten();\n"),
    ("outdated-of-before-removed-at-once", "scheduler/checkpoints/checkpoint_removal.cc",
     "  outdated_ = state.outdated;\n",
     "  for (const std::string& directory : state.outdated) store_->RemoveCheckpoint(directory);\n"),
    ("workers-taken-back-apart", "scheduler/setup.cc",
     "out.ends_together = IsExact(options.job);", "out.ends_together = false;"),
    ("lease-counted-in-equal-batches", "scheduler/leases/splits.cc",
     "splits_[split].rows - splits_[split].trained, BatchRows(split, rank));",
     "splits_[split].rows - splits_[split].trained, options_.batch_rows);"),
    ("leases-not-taken-back", "scheduler/leases/splits.cc",
     "if (!take_back || covered) continue;", "continue;"),
    ("earlier-ticks-not-told", "server/clock/cohort.cc",
     "if (point.clock > kept.back().clock) kept.push_back(point);", "(void)point;"),
    ("workers-admitted-one-by-one", "scheduler/membership/membership.cc",
     "if (admit_together_ && waiting < options_.workers && now - *joinable_ < kTogetherLeasesMax * options_.lease_us)\n    return false;", ""),
    ("changed-row-taken-for-its-copy", "server/tier/resident_rows.h",
     "if (states_.At(place, number).has_copy()) [[unlikely]]\n      DropCopy(place, number);", "(void)place, (void)number;"),
    ("fetched-row-over-a-newer-one", "server/tier/residency.cc",
     "if (!rows->IsColdAt(record[0], record[1], ids[i])) continue;", ""),
    ("cold-rows-not-in-the-checkpoint", "server/store/sparse_fragment.cc",
     "      cold_.Add(number, key);\n", "      (void)key;\n"),
    ("moved-row-looked-for-where-it-was", "server/tier/residency.cc",
     "if (std::ranges::find(tables_, table, &Table::id)->rows->OnMoved(owner, from, to)) return {};",
     "if (to != from) return {};"),
    ("changes-since-what-was-not-whole-lost", "server/shard/shard_cuts.cc",
     ".base_is_previous_cut = order.base.value != 0 && order.base == base_.last_cut,",
     ".base_is_previous_cut = order.base.value != 0,"),
    ("changes-since-what-was-given-up-lost", "server/store/change_log.h",
     "if (!base_is_previous) since_cut_.Merge(in_cut_);", "(void)base_is_previous;"),
    ("base-that-is-not-whole", "scheduler/checkpoints/checkpoints.cc",
     "pending_->order.base = base_generations_.back().id;", "pending_->order.base = CheckpointId(last_.value - 1);"),
    ("chain-without-its-middle", "scheduler/checkpoints/checkpoints.cc",
     "if (pending_->order.base.value != 0) all = base_generations_;",
     "if (pending_->order.base.value != 0) all = base_generations_;\n  if (all.size() > 2) all.erase(all.begin() + 1);"),
    ("hash-of-the-changes-for-that-of-all", "server/shard/shard_cuts.cc",
     ".hash_all = order.whole_hash && !all});", ".hash_all = false});"),
    ("lost-base-tried-again", "scheduler/checkpoints/checkpoint_coordinator.cc", "  checkpoints_.ForgetBase();\n", ""),
    ("resumed-data-trained-again", "scheduler/leases/splits.cc",
     "if (index < trained.size()) split.restored", "if (index + 1 < trained.size()) split.restored"),
    ("expired-rows-in-a-cut", "server/store/fragment_cut.cc",
     "  if (IsExpired(row.life)) return KeepExpired(number, key, out);\n", ""),
    ("lives-decide-where-they-start", "server/store/table.cc",
     "std::exchange(started_, true) && boundary > boundary_", "boundary > boundary_"),
    ("boundary-told-late", "server/shard/clocks.cc",
     "  rows_->expiry().AdvanceClock(clock);\n", ""),
    ("rows-forget-the-time-in-the-log", "server/shard/log_replay.cc",
     "  if (head.rows_clock) context_.rows->expiry().AdvanceClock(*head.rows_clock);\n", ""),
    ("seconds-not-restored", "server/shard/log_replay.cc",
     "  if (head.rows_seconds) context_.rows->expiry().AdvanceSeconds(*head.rows_seconds);\n", ""),
    ("seconds-not-logged", "server/shard/row_timer.cc",
     "  outbox_->Append(LoggedTime{seconds});\n", ""),
    ("removed-keys-come-back", "server/store/sparse_fragment.cc",
     "  if (context_->has_base) removed_.Add(rows_.index(), key);\n", ""),
    ("what-was-read-taken-for-durable", "server/log/log_writer.cc",
     "if (!new_log) return unproven_ ? Rewrite(*unproven_) : Status();", "if (!new_log) return {};"),
    ("second-sync-believed", "server/log/log_writer.cc",
     "if (!new_log) return unproven_ ? Rewrite(*unproven_) : Status();",
     "if (!new_log && unproven_) {\n    auto tail = files_->OpenToWrite(Path(SegmentName(segments_.back().number)));\n"
     "    if (!tail) return std::unexpected(tail.error());\n    TARN_RETURN_IF_ERROR((*tail)->Sync());\n"
     "    return files_->SyncDirectory(directory_);\n  }\n  if (!new_log) return {};"),
    ("part-reported-before-its-sync", "sim/sim_store.cc",
     "hooks_.later(Duration() / 2, [this, part = std::move(part), directory] {",
     "hooks_.written(part);\n  hooks_.later(Duration() / 2, [this, part, directory] {"),
    ("paused-shard-answers", "server/shard/scheduler_link.h",
     "bool Paused() const { return step_->now() - heard_ > lease_us_; }",
     "bool Paused() const { return false; }"),
    ("held-repetition-leaves-early", "server/shard/held_answers.cc",
     "for (auto it = acks_.begin(); it != acks_.end();) {\n    if (it->second.until > synced) {",
     "for (auto it = acks_.begin(); it != acks_.end();) {\n    if (false) {"),
    ("counts-lost-at-a-resume", "server/checkpoint/row_loader.cc", "return rows_->LoadSeen(table_, seen);", "return {};"),
    ("reason-told-once", "server/shard/stop_notice.cc",
     "  else if (step_->now() >= next_send_)\n    SendReason();\n", ""),
    ("number-of-several-lists", "worker/client/key_lists.cc",
     "of.entries.push_front({next_++, fingerprint, keys, false});",
     "of.entries.push_front({next_++ % 8 + 1, fingerprint, keys, false});"),
    ("list-of-another-worker", "server/shard/key_lists.cc",
     "const auto worker = workers_.find(incarnation);\n  if (worker == workers_.end()) return nullptr;",
     "const auto worker = workers_.begin();\n  if (worker == workers_.end()) return nullptr;"),
    ("list-not-asked-for", "worker/client/client_data.cc",
     "lists_.OnUnknown(shard, context_->now + context_->heartbeat_us());", "(void)shard;"),
    ("kept-row-one-clock-too-old", "worker/client/client_cache.cc",
     "Clock(use.value - std::min(use.value, bound));", "Clock(use.value - std::min(use.value, bound + 1));"),
    ("kept-row-of-the-clock-it-was-asked-for", "worker/client/client_pulls.cc",
     "part.keys.sections, open);\n", "part.keys.sections, whole.clock);\n"),
    ("kept-row-of-the-evaluation-before", "worker/client/evaluation_start.h", "return !train && last != use;",
     "return !train && !last;"),
    ("pushed-row-kept", "worker/client/client_cache.cc", "  table->rows.Drop(plan.keys);\n", ""),
    ("row-asked-for-before-a-push-kept", "worker/client/client_cache.cc",
     "    if (table_->MissesOwnPushes(sections[i])) continue;\n", ""),
    ("row-refreshed-before-a-push-kept", "worker/client/row_refresher.cc",
     "      if (cached_->MissesOwnPushes(sections[i])) continue;\n", ""),
    ("refreshed-row-one-clock-too-new", "worker/client/row_refresher.cc", "Renew(keys, rows, version);", "Renew(keys, rows, version + 1);"),
    ("staleness-range-one-too-wide", "server/clock/ssp.cc", "+ consistency().staleness_range;",
     "+ consistency().staleness_range + 1;"),
    ("row-in-the-place-of-another", "worker/client/row_cache.cc", "  set.keys[way] = key;\n", "  if (here) set.keys[way] = key;\n"),
    ("found-rows-in-the-wrong-places", "worker/client/plan.cc",
     "    ++part.runs.back().count;\n    part.keys.push_back(plan.keys[place]);",
     "    ++part.runs.back().count;\n    part.keys.push_back(plan.keys[place == 7 ? 6 : place]);"),
    ("pushes-held-back-over-a-cut", "worker/client/client.cc",
     "return wants_to_leave || data.ticks()->bound().open() || context.view.checkpoint.id.value != 0 || control.awaited();",
     "return wants_to_leave || control.awaited();"),
    ("parts-of-a-sum-over-each-other", "worker/client/push_combiner.cc", "    to += part.gradients.size();\n", ""),
    ("keys-in-lent-memory-not-copied", "server/shard/message_decoder.cc",
     "  ForEachPayload(*message, copy, [&]", "  ForEachPayload(*message, [](Buffer&) {}, [&]"),
    ("expired-row-steps-on", "server/store/sparse_fragment.cc",
     "number != RowIndex::kNone && !IsExpired(number)) {", "number != RowIndex::kNone) {"),
    ("repeated-push-raises-the-version", "server/shard/pushes.cc",
     "    taken->push_back(watermark != before);\n",
     "    taken->push_back(watermark != before);\n"
     "    if (Fragment* known = context_.rows->Find(section.partition)->Find(part.push.table);\n"
     "        known != nullptr && code == ErrorCode::kOk && !taken->back())\n"
     "      known->CountSection(kNoVersion);\n"),
    ("versions-of-late-answers-forgotten", "worker/client/pull_memory.cc",
     "  if (after != seen.end() && after->version <= version) return;\n",
     "  if (!seen.empty() && seen.back().min_clock >= min_clock) return;\n"),
    ("versions-of-old-rows-forgotten", "worker/client/pull_memory.cc",
     "seen.front().min_clock.value + bound <", "seen.front().min_clock.value + bound / 2 <"),
    ("cached-row-has-the-newest-version", "worker/client/pull_memory.cc",
     "  return first == seen.end() ? seen.back().version : first->version;", "  return seen.back().version;"),
    ("cached-row-keeps-no-version", "worker/client/client_data.cc",
     "  if (record != nullptr && cached->found().rows != 0) NoteCached(plan, when.use, cached->found().oldest);\n", ""),
    ("pulled-rows-lost-by-a-resend", "worker/client/client_pushes.cc",
     "    PushPart& sent = push.tables.emplace_back(part.rows);\n",
     "    PushPart& sent = push.tables.emplace_back(part.rows);\n"
     "    if (part.counted && sent.pulled) {\n"
     "      const std::size_t rows = sent.keys.count * CodecRowBytes(*sent.pulled, context_->tables.at(sent.table).dim);\n"
     "      sent.values = Buffer::Copy(sent.values.data(), sent.values.size());\n"
     "      std::memset(sent.values.data() + sent.values.size() - rows, 0, rows);\n"
     "    }\n"),
    ("version-lost-by-a-resend", "worker/client/client_pushes.cc",
     "    PushPart& sent = push.tables.emplace_back(part.rows);\n",
     "    PushPart& sent = push.tables.emplace_back(part.rows);\n"
     "    if (part.counted)\n"
     "      for (Section& section : sent.keys.sections) section.version = kNoVersion;\n"),
    ("second-table-of-a-push-not-applied", "server/shard/pushes.cc",
     "  for (std::size_t t = 0; t < parts.size(); ++t)\n    if (!context_.stop->Check(Perform(",
     "  for (std::size_t t = 0; t < 1; ++t)\n    if (!context_.stop->Check(Perform("),
    ("second-table-of-a-push-not-logged", "server/shard/pushes.cc",
     "    for (std::size_t t = 0; t < parts.size(); ++t)\n      if (std::ranges::find(parts[t], true)",
     "    for (std::size_t t = 0; t < 1; ++t)\n      if (std::ranges::find(parts[t], true)"),
    ("tables-of-different-consistency-together", "worker/client/client_context.h",
     "one != other && tables.at(one).consistency == tables.at(other).consistency;", "one != other;"),
    ("checkpoint-without-versions", "server/store/fragment_cut.cc",
     "  if (state.version.value == 0) return;\n", "  return;\n"),
    ("recovery-without-the-state-of-rules", "server/store/store.cc",
     "  if (Partition* owned = Find(partition)) owned->Obtain(table).SetState(state);\n",
     "  if (Partition* owned = Find(partition))\n"
     "    owned->Obtain(table).SetState({state.version, std::vector<std::uint32_t>(floats)});\n"),
    ("state-of-rules-not-as-of-the-cut", "server/store/fragment_cut.cc",
     "  fragment_state_ = std::move(state);\n", ""),
    ("assigned-before-the-sums", "server/clock/clock_buckets.cc",
     "  TARN_RETURN_IF_ERROR(CloseSteps(clock, steps, divisor, rows));\n"
     "  for (const Contribution& c : changes) TARN_RETURN_IF_ERROR(Change(clock, c, rows));\n",
     "  for (const Contribution& c : changes) TARN_RETURN_IF_ERROR(Change(clock, c, rows));\n"
     "  TARN_RETURN_IF_ERROR(CloseSteps(clock, steps, divisor, rows));\n"),
    ("deleted-row-missing-in-the-cut", "server/store/sparse_fragment.cc",
     "  KeepFirst(number, key);\n  rows_.Erase(", "  rows_.Erase("),
    ("assigned-before-delayed-pushes", "worker/client/client_data.cc",
     "  if (combiner_.Combines(**spec)) combiner_.FlushAll();\n", ""),
    ("assigned-row-kept", "worker/client/client_data.cc",
     "  if (CachedTable* cached = cache_.Of(**spec)) cache_.OnPush(cached, plan, pushes_);\n", ""),
    ("gathered-deletion-logged-as-a-step", "server/shard/logged_inputs.cc", "  push.action = c.action;\n", ""),
    ("backup-workers-one-too-many", "server/clock/cohort.cc",
     "    if (up_to > backups) break;", "    if (up_to > backups + 1) break;"),
    ("cut-does-not-hold-the-open-clock", "server/shard/clocks.cc",
     "cohort_.HoldAt(due ? std::optional(order.clock) : std::nullopt);", "cohort_.HoldAt(std::nullopt);"),
    ("late-gradient-counts", "server/clock/bsp.cc",
     "c.action != PushAction::kStep || cohort.HasFinished(c.incarnation, clock)", "true || cohort.HasFinished(c.incarnation, clock)"),
    ("mean-over-late-workers-too", "server/clock/bsp.cc", "cohort.Finished(clock)", "cohort.Size(clock)"),
    ("skipped-clocks-forgotten", "scheduler/leases/leases.cc",
     "  worker.own = worker.own + (clocks - std::exchange(worker.skipped, clocks));\n", "  worker.skipped = clocks;\n"),
    ("deletion-logged-as-nothing", "server/log/record.cc",
     "      static_cast<wire::PushAction>(p.push.action));", "      wire::PushAction::Step);"),
]


def sync(source):
    """Copies the sources. Writes only files that differ, so that ninja builds only what they change."""
    for name in FOLDERS:
        origin = ROOT / name
        for file in [origin] if origin.is_file() else origin.rglob("*"):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            copy = source / file.relative_to(ROOT)
            if copy.exists() and copy.read_bytes() == file.read_bytes():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def build(source):
    binary = WORK / "build"
    if not (binary / "build.ninja").exists():
        subprocess.run(["cmake", "-S", source, "-B", binary, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                        "-DTARN_CUDA=OFF"], check=True,
                       stdout=subprocess.DEVNULL)
    done = subprocess.run(["cmake", "--build", binary, "--target", "tarn-sim"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout[-3000:])
    return binary / "bin/tarn-sim"


def run_seeds(program, seeds):
    return subprocess.run([program, "--first", "1", "--seeds", str(seeds), "--threads", "1", "--repeat-every", "0"],
                          capture_output=True, text=True, timeout=3600)


def first_crash(program, seeds):
    """The least number of seeds with which the simulator crashes, because a crash does not report its seed."""
    enough = 1
    while enough < seeds and run_seeds(program, enough).returncode >= 0:
        enough *= 2
    few, enough = enough // 2, min(enough, seeds)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (middle, enough) if run_seeds(program, middle).returncode >= 0 else (few, middle)
    return enough


def seeds_until_found(program, seeds):
    """The number of the first seed that fails, and the failure; None if none fails."""
    done = run_seeds(program, seeds)
    failed = re.search(r"FAILED seed (\d+): ([^\n]*)", done.stdout)
    if failed:
        return int(failed[1]), failed[2][:90]
    if done.returncode > 0 and "too few busy runs" not in done.stdout:
        return seeds, (done.stdout.strip().splitlines() or ["?"])[-1][:90]
    if done.returncode < 0:
        return first_crash(program, seeds), "the simulator crashed: " + (done.stderr.strip().splitlines() or ["?"])[-1][:80]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which bugs (all)")
    parser.add_argument("--check", action="store_true", help="plant none; exit 1 if the sources have moved away from one")
    parser.add_argument("--seeds", type=int, default=2000, help="seeds to try for each")
    options = parser.parse_args()
    stale = [f"{name}: {file} holds its text {(ROOT / file).read_text().count(old)} times, must be once"
             for name, file, old, _ in MUTANTS if (ROOT / file).read_text().count(old) != 1]
    if stale:
        sys.exit("\n".join(stale))
    if options.check:
        return 0
    source = WORK / "source"
    source.mkdir(parents=True, exist_ok=True)
    missed = 0
    print(f"{'bug':36} {'found at seed':>13}  how", flush=True)
    for name, file, old, new in MUTANTS:
        if options.names and name not in options.names:
            continue
        sync(source)
        (source / file).write_text((ROOT / file).read_text().replace(old, new))
        found = seeds_until_found(build(source), options.seeds)
        print(f"{name:36} {found[0] if found else 'not found':>13}  {found[1] if found else ''}", flush=True)
        missed += found is None
        shutil.copyfile(ROOT / file, source / file)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
