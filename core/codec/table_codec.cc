#include "core/codec/table_codec.h"

#include <fmt/format.h>

#include <string_view>

#include "core/limits.h"

namespace tarn {

namespace {

static_assert(SameEnd(wire::ValueCodec::MAX, ValueCodec::kTopK));
static_assert(SameEnd(wire::TableKind::MAX, TableKind::kSparse));
static_assert(SameEnd(wire::InitializerKind::MAX, InitializerKind::kNormal));
static_assert(SameEnd(wire::OptimizerKind::MAX, OptimizerKind::kFtrl));
static_assert(SameEnd(wire::ScheduleKind::MAX, ScheduleKind::kCosine));
static_assert(SameEnd(wire::ConsistencyMode::MAX, ConsistencyMode::kAsp));
static_assert(SameEnd(wire::ApplyMode::MAX, ApplyMode::kAggregated));

wire::OptimizerSpec EncodeOptimizer(const OptimizerSpec& o) {
  const wire::ScheduleSpec schedule(static_cast<wire::ScheduleKind>(o.schedule.kind), o.schedule.warmup_clocks,
                                    o.schedule.period_clocks, o.schedule.factor);
  return wire::OptimizerSpec(static_cast<wire::OptimizerKind>(o.kind), o.learning_rate, o.momentum, o.rho, o.beta1,
                             o.beta2, o.epsilon, o.initial_accumulator, o.weight_decay, o.ftrl_beta, o.ftrl_l1,
                             o.ftrl_l2, o.l2, o.clip_value, o.clip_norm, schedule);
}

// Keeps the first error; after one it goes on with empty values.
class Decoder {
 public:
  Expected<TableSpec> Table(const wire::TableSpec* m) {
    if (!Has(m, "spec") || !Has(m->initializer(), "table.initializer") || !Has(m->optimizer(), "table.optimizer") ||
        !Has(m->consistency(), "table.consistency"))
      return std::unexpected(status_.error());
    TableSpec out{.id = TableId(m->id()),
                  .name = Name(m->name()),
                  .kind = Enum<TableKind>(m->kind(), "table.kind"),
                  .dim = m->dim(),
                  .rows = m->rows(),
                  .initializer = Initializer(*m->initializer()),
                  .optimizer = Optimizer(*m->optimizer()),
                  .consistency = Consistency(*m->consistency()),
                  .pull_codec = Enum<ValueCodec>(m->pull_codec(), "table.pull_codec"),
                  .push_codec = Enum<ValueCodec>(m->push_codec(), "table.push_codec"),
                  .row_codec = Enum<ValueCodec>(m->row_codec(), "table.row_codec"),
                  .life = Life(m->life()),
                  .top_k = TopK(m->top_k())};
    if (!status_) return std::unexpected(status_.error());
    return out;
  }

 private:
  void Refuse(ErrorCode code, std::string text) {
    if (status_) status_ = Fail(code, std::move(text));
  }

  bool Has(const void* part, std::string_view field) {
    if (part == nullptr) Refuse(ErrorCode::kMalformed, fmt::format("{}: missing", field));
    return part != nullptr;
  }

  template <typename To, typename From>
  To Enum(From value, std::string_view field) {
    if (value <= From::MAX) return static_cast<To>(value);
    Refuse(ErrorCode::kMalformed, fmt::format("{}: value {}, expected 0 to {}", field, static_cast<unsigned>(value),
                                              static_cast<unsigned>(From::MAX)));
    return To{};
  }

  std::string Name(const flatbuffers::String* name) {
    if (name == nullptr) return {};
    if (name->size() <= limits::kNameBytesMax) return name->str();
    Refuse(ErrorCode::kTooLarge,
           fmt::format("table.name: {} bytes, expected at most {}", name->size(), limits::kNameBytesMax));
    return {};
  }

  InitializerSpec Initializer(const wire::InitializerSpec& m) {
    return {Enum<InitializerKind>(m.kind(), "table.initializer.kind"), m.a(), m.b()};
  }

  ConsistencySpec Consistency(const wire::ConsistencySpec& m) {
    return {Enum<ConsistencyMode>(m.mode(), "table.consistency.mode"), m.staleness(),
            Enum<ApplyMode>(m.apply(), "table.consistency.apply")};
  }

  LifeSpec Life(const wire::LifeSpec* m) {
    if (m == nullptr) return {};
    return {.on = m->on(),
            .admit_count = m->admit_count(),
            .admit_probability = m->admit_probability(),
            .expire_clocks = m->expire_clocks(),
            .expire_seconds = m->expire_seconds(),
            .min_score = m->min_score(),
            .score_decay = m->score_decay(),
            .rows_max = m->rows_max(),
            .sweep_clocks = m->sweep_clocks()};
  }

  static TopKSpec TopK(const wire::TopKSpec* m) {
    return m == nullptr ? TopKSpec() : TopKSpec{m->share(), m->residual_bytes()};
  }

  OptimizerSpec Optimizer(const wire::OptimizerSpec& m) {
    const wire::ScheduleSpec& s = m.schedule();
    return {.kind = Enum<OptimizerKind>(m.kind(), "table.optimizer.kind"),
            .learning_rate = m.learning_rate(),
            .momentum = m.momentum(),
            .rho = m.rho(),
            .beta1 = m.beta1(),
            .beta2 = m.beta2(),
            .epsilon = m.epsilon(),
            .initial_accumulator = m.initial_accumulator(),
            .weight_decay = m.weight_decay(),
            .ftrl_beta = m.ftrl_beta(),
            .ftrl_l1 = m.ftrl_l1(),
            .ftrl_l2 = m.ftrl_l2(),
            .l2 = m.l2(),
            .clip_value = m.clip_value(),
            .clip_norm = m.clip_norm(),
            .schedule = {.kind = Enum<ScheduleKind>(s.kind(), "table.optimizer.schedule.kind"),
                         .warmup_clocks = s.warmup_clocks(),
                         .period_clocks = s.period_clocks(),
                         .factor = s.factor()}};
  }

  Status status_;
};

}  // namespace

flatbuffers::Offset<wire::TableSpec> EncodeTable(flatbuffers::FlatBufferBuilder* builder, const TableSpec& spec) {
  const wire::InitializerSpec initializer(static_cast<wire::InitializerKind>(spec.initializer.kind), spec.initializer.a,
                                          spec.initializer.b);
  const wire::OptimizerSpec optimizer = EncodeOptimizer(spec.optimizer);
  const wire::ConsistencySpec consistency(static_cast<wire::ConsistencyMode>(spec.consistency.mode),
                                          spec.consistency.staleness,
                                          static_cast<wire::ApplyMode>(spec.consistency.apply));
  const LifeSpec& l = spec.life;
  const wire::LifeSpec life(l.on, l.admit_count, l.admit_probability, l.min_score, l.score_decay, l.expire_clocks,
                            l.expire_seconds, l.rows_max, l.sweep_clocks);
  const wire::TopKSpec top_k(spec.top_k.share, spec.top_k.residual_bytes);
  const auto name = builder->CreateString(spec.name);
  return wire::CreateTableSpec(
      *builder, spec.id.value, name, static_cast<wire::TableKind>(spec.kind), spec.dim, spec.rows, &initializer,
      &optimizer, &consistency, static_cast<wire::ValueCodec>(spec.pull_codec),
      static_cast<wire::ValueCodec>(spec.push_codec), static_cast<wire::ValueCodec>(spec.row_codec),
      l == LifeSpec{} ? nullptr : &life, spec.top_k == TopKSpec() ? nullptr : &top_k);
}

Expected<TableSpec> DecodeTable(const wire::TableSpec* table) { return Decoder().Table(table); }

}  // namespace tarn
