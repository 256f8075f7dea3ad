#include "core/codec/pack.h"

#include "types_generated.h"

namespace flatbuffers {

namespace wire = tarn::wire;

#define TARN_PACK_ID(Name)                                               \
  wire::Name Pack(const tarn::Name& id) { return wire::Name(id.value); } \
  tarn::Name UnPack(const wire::Name& id) { return tarn::Name(id.value()); }

TARN_PACK_ID(TableId)
TARN_PACK_ID(PartitionId)
TARN_PACK_ID(ShardId)
TARN_PACK_ID(Epoch)
TARN_PACK_ID(ViewVersion)
TARN_PACK_ID(Clock)
TARN_PACK_ID(Incarnation)
TARN_PACK_ID(RequestId)
TARN_PACK_ID(LeaseId)
TARN_PACK_ID(LogSequence)
TARN_PACK_ID(CheckpointId)

#undef TARN_PACK_ID

static_assert(static_cast<unsigned>(wire::ErrorCode::MAX) == static_cast<unsigned>(tarn::ErrorCode::kDiverged));
static_assert(static_cast<unsigned>(wire::WorkerState::MAX) == static_cast<unsigned>(tarn::WorkerState::kEnded));

wire::Code Pack(const tarn::ErrorCode& code) { return wire::Code(static_cast<wire::ErrorCode>(code)); }
tarn::ErrorCode UnPack(const wire::Code& code) { return static_cast<tarn::ErrorCode>(code.value()); }

wire::DataPosition Pack(const tarn::DataPosition& p) { return {p.lease.value, p.rows}; }
tarn::DataPosition UnPack(const wire::DataPosition& p) { return {tarn::LeaseId(p.lease()), p.rows()}; }

wire::TickPoint Pack(const tarn::TickPoint& t) { return {t.clock.value, Pack(t.position)}; }
tarn::TickPoint UnPack(const wire::TickPoint& t) { return {tarn::Clock(t.clock()), UnPack(t.position())}; }

wire::FencedTick Pack(const tarn::FencedTick& f) {
  return {f.incarnation.value, f.tick.value, Pack(f.position), f.pushed.value};
}
tarn::FencedTick UnPack(const wire::FencedTick& f) {
  return {tarn::Incarnation(f.incarnation()), tarn::Clock(f.tick()), UnPack(f.position()), tarn::Clock(f.pushed())};
}

wire::WorkerTick Pack(const tarn::WorkerTick& t) { return {t.incarnation.value, t.clock.value, Pack(t.position)}; }
tarn::WorkerTick UnPack(const wire::WorkerTick& t) {
  return {tarn::Incarnation(t.incarnation()), tarn::Clock(t.clock()), UnPack(t.position())};
}

wire::WorkerEntry Pack(const tarn::WorkerEntry& w) {
  return {w.rank.value, static_cast<wire::WorkerState>(w.state), w.incarnation.value, w.join.value, w.end.value};
}
tarn::WorkerEntry UnPack(const wire::WorkerEntry& w) {
  return {tarn::WorkerRank(w.rank()), tarn::Incarnation(w.incarnation()), static_cast<tarn::WorkerState>(w.state()),
          tarn::Clock(w.join()), tarn::Clock(w.end())};
}

wire::SetRows Pack(const tarn::SetRows& rows) { return {rows[0], rows[1], rows[2]}; }
tarn::SetRows UnPack(const wire::SetRows& rows) { return {rows.train(), rows.validation(), rows.test()}; }

wire::CheckpointTable Pack(const tarn::CheckpointTable& t) {
  return {t.table.value, t.rows, t.removed, t.seen, t.state_rows};
}
tarn::CheckpointTable UnPack(const wire::CheckpointTable& t) {
  return {tarn::TableId(t.table()), t.rows(), t.removed(), t.seen(), t.state_rows()};
}

}  // namespace flatbuffers
