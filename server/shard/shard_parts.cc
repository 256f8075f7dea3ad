#include "server/shard/shard_parts.h"

#include <algorithm>
#include <utility>

namespace tarn::server {

ShardParts::ShardParts(const ShardBase& base, const RouteMap& routes, StoreOptions store,
                       std::unique_ptr<Residency> tier)
    : options(base.options),
      rows(std::move(store), std::move(tier)),
      policies(options.policies),
      clocks(&policies, &rows, base.observer),
      lists(options.held_lists_bytes_max, options.held_lists_peer_bytes_max),
      senders(&clocks.cohort(), base.step, base.counters),
      pulls(options, {.rows = &rows,
                      .clocks = &clocks,
                      .policies = &policies,
                      .lists = &lists,
                      .senders = &senders,
                      .step = base.step,
                      .stop = base.stop,
                      .counters = base.counters,
                      .observer = base.observer}),
      view(routes, {.rows = &rows,
                    .policies = &policies,
                    .clocks = &clocks,
                    .pulls = &pulls,
                    .lists = &lists,
                    .blobs = base.blobs,
                    .step = base.step}),
      cuts({.slice_bytes = options.cut_slice_bytes, .pause_us = options.cut_pause_us},
           {.store = base.checkpoint_store,
            .rows = &rows,
            .cohort = &clocks.cohort(),
            .outbox = base.outbox,
            .step = base.step,
            .stop = base.stop,
            .counters = base.counters,
            .close_below = [this, stop = base.stop](Clock clock) { stop->Check(clocks.CloseBelow(clock)); },
            .on_cut =
                [this, log = base.outbox](CheckpointId id) {
                  soft_state().BeginSegment(id, log);
                  clocks.NoteCut(id);
                },
            .shards_of_view = [this] { return static_cast<std::uint32_t>(view.view().routes.endpoints.size()); }}),
      pushes(options.bucket_bytes_max, {.rows = &rows,
                                        .clocks = &clocks,
                                        .policies = &policies,
                                        .lists = &lists,
                                        .outbox = base.outbox,
                                        .stop = base.stop,
                                        .counters = base.counters,
                                        .observer = base.observer,
                                        .may_apply = [this](Clock clock) { return cuts.MayApply(clock); },
                                        .may_accept = [this](Clock clock) { return cuts.MayAccept(clock); }}),
      decoder(&rows, &senders, &lists),
      gate(options.waiting_messages_max, options.waiting_bytes_max,
           {.rows = &rows, .clocks = &clocks, .policies = &policies, .senders = &senders, .counters = base.counters}),
      messages({.rows = &rows,
                .clocks = &clocks,
                .pushes = &pushes,
                .pulls = &pulls,
                .blobs = base.blobs,
                .senders = &senders,
                .decoder = &decoder,
                .gate = &gate,
                .outbox = base.outbox,
                .step = base.step,
                .stop = base.stop,
                .observer = base.observer,
                .on_tick = base.on_tick,
                .other_bytes = [this] { return WaitingBytes(); }}),
      timer(options.unix_us, &rows, base.outbox) {}

// Rows get most of the memory: a row in memory saves a read from disk, while a dropped key list or a rejected message
// is only sent again. Gathered pushes and replies keep their bounds, because clocks could not close without them.
void ShardParts::SetMemoryLimit(std::size_t bytes) {
  constexpr std::size_t kListsShare = 32, kGateShare = 16, kParkedShare = 4, kLeast = std::size_t{1} << 20;
  lists.SetBound(std::min(options.held_lists_bytes_max, bytes / kListsShare));
  gate.SetBound(std::min(options.waiting_bytes_max, std::max(kLeast, bytes / kGateShare)));
  pulls.SetParkedBound(std::min(options.parked_bytes_max, std::max(kLeast, bytes / kParkedShare)));
}

std::size_t ShardParts::WaitingBytes() const {
  return clocks.buckets().bytes() + pulls.parked_bytes() + pulls.reply_bytes() + gate.bytes() + lists.bytes();
}

}  // namespace tarn::server
