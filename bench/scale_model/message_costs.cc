#include "bench/scale_model/message_costs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/position.h"

namespace tarn::scale {
namespace {

// Bytes of a message besides keys and values: its header, and the framing of ZeroMQ and TCP.
constexpr double kMessageBytes = 200, kSectionBytes = 16;

}  // namespace

Work WorkOfAnswer(const Body& body) {
  if (std::holds_alternative<PullReply>(body)) return Work::kTakeReply;
  if (std::holds_alternative<PushAck>(body)) return Work::kTakeAck;
  if (std::holds_alternative<TickAck>(body)) return Work::kTakeTickAck;
  return Work::kCount;
}

MessageCosts::MessageCosts(const Job& job, const FleetOptions& options, const Costs& costs, const Workload* workload)
    : options_(options), costs_(costs), workload_(*workload) {
  CountDenseParts(job);
}

// Computes the largest share of one server in the dense rows of each bundle.
void MessageCosts::CountDenseParts(const Job& job) {
  std::vector<double> by_server(options_.servers);
  for (const worker::TableUse& use : workload_.tables()) {
    const Positioner positioner(use.spec, TableSalt(job.job.seed, use.spec.name));
    for (Key key = 0; use.spec.kind == TableKind::kDense && key < use.spec.rows; ++key)
      ++by_server[std::size_t(static_cast<unsigned __int128>(positioner(key)) * options_.servers >> 64)];
  }
  for (auto begin = by_server.begin(); begin != by_server.end(); begin += options_.bundle) {
    const auto end = begin + options_.bundle;
    const double sum = std::accumulate(begin, end, 0.0);
    dense_parts_.push_back(sum > 0 ? *std::max_element(begin, end) / sum : 1);
  }
}

Extent MessageCosts::ExtentOf(const Message& message, std::uint32_t shard, const Extent* asked) const {
  Extent extent;
  const double bundle_servers = options_.bundle;
  double rows = 0, sections = 0;
  bool sparse = false;
  // The expected number of the bundle's servers that own at least one of `count` rows.
  const auto messages_of = [bundle_servers](double count) {
    return bundle_servers * (1 - std::pow(1 - 1 / bundle_servers, count));
  };
  const auto add = [&](TableId table, double count, double table_sections, bool keys, bool values) {
    const bool dense = workload_.dense(table);
    rows += count;
    sections += table_sections;
    sparse = sparse || !dense;
    (dense ? extent.dense : extent.rows) += workload_.WorkRows(table, count);
    extent.tables += messages_of(count);
    extent.bytes += (keys ? sizeof(Key) * count : 0) + (values ? 4.0 * workload_.wire_dim(table) * count : 0);
  };
  if (const auto* pull = std::get_if<Pull>(&message.body)) {
    for (const PullPart& part : pull->tables)
      add(part.table, part.keys.count, double(part.keys.sections.size()), part.keys.codec == KeyCodec::kRaw, false);
  } else if (const auto* push = std::get_if<Push>(&message.body)) {
    for (const PushPart& part : push->tables)
      add(part.table, part.keys.count, double(part.keys.sections.size()), part.keys.codec == KeyCodec::kRaw, true);
  } else if (const auto* reply = std::get_if<PullReply>(&message.body)) {
    for (const ReplyPart& part : reply->tables) add(part.table, part.count, 0, false, true);
  }
  if (rows > 0) {
    extent.copies = messages_of(rows);
    extent.dense_part = dense_parts_[shard];
    extent.part = sparse ? 1 / bundle_servers : extent.dense_part;
  } else if (std::holds_alternative<PushAck>(message.body) && asked != nullptr) {
    extent.copies = asked->copies, extent.part = asked->part, extent.dense_part = asked->dense_part;
    extent.tables = asked->tables;
    sections = double(std::get<PushAck>(message.body).sections.size());
  } else {
    extent.copies = bundle_servers, extent.part = extent.dense_part = 1 / bundle_servers;
    const bool tick = std::holds_alternative<Tick>(message.body) || std::holds_alternative<TickAck>(message.body);
    if (tick && options_.free_ticks) return {.copies = 0};
  }
  extent.payload = extent.bytes;
  extent.bytes += extent.copies * kMessageBytes + std::max(sections, extent.copies) * kSectionBytes;
  return extent;
}

double MessageCosts::Of(bool worker, Work work, const Extent& extent) const {
  if (options_.free) return 0;
  const double part = worker ? 1 : extent.part, dense_part = worker ? 1 : extent.dense_part;
  // Messages times shards of the fleet, because a step of the client visits all lanes.
  const double shard_visits = worker ? extent.copies * options_.servers : 0;
  return costs_[work](
      {part * extent.copies, part * extent.rows, dense_part * extent.dense, shard_visits, part * extent.tables});
}

double MessageCosts::Coding(bool worker, Work work, const Extent& extent) const {
  const double part = worker ? 1 : extent.part;
  return options_.free ? 0 : costs_[work]({part * extent.copies, part * extent.bytes});
}

double MessageCosts::OfFrame(Work work, const Load& load) const {
  return options_.free ? 0 : costs_[work]({.other = load.frames});
}

double MessageCosts::Io(Work work, const Load& load) const {
  return options_.free ? 0 : costs_[work]({load.frames, load.bytes});
}

double MessageCosts::In(bool worker, const Body& body, const Extent& extent) const {
  double ns = Coding(worker, Work::kReceive, extent);
  const auto add = [&](Work work) { ns += Of(worker, work, extent); };
  if (const Work work = WorkOfAnswer(body); work != Work::kCount) add(work);
  if (std::holds_alternative<Pull>(body)) add(Work::kPark);
  if (std::holds_alternative<Tick>(body)) add(Work::kShardTick);
  if (const auto* push = std::get_if<Push>(&body)) {
    for (const worker::TableUse& use : workload_.tables())
      if (use.spec.id == push->tables.front().table)
        add(use.spec.consistency.apply == ApplyMode::kAggregated ? Work::kGather : Work::kApply);
  }
  return ns;
}

double MessageCosts::Out(bool worker, const Body& body, const Extent& extent) const {
  double ns = Coding(worker, Work::kSend, extent);
  const auto add = [&](Work work) { ns += Of(worker, work, extent); };
  if (std::holds_alternative<Pull>(body)) add(Work::kAsk);
  if (std::holds_alternative<Push>(body)) add(Work::kPush);
  if (std::holds_alternative<Tick>(body)) add(Work::kTick);
  if (std::holds_alternative<PullReply>(body)) add(Work::kServe);
  return ns;
}

}  // namespace tarn::scale
