#include "core/codec/table_codec.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "core/codec/schema_check.h"

namespace tarn {

Expected<TableSpec> DecodeTable(const wire::TableSpec* table) {
  if (table == nullptr) return Fail(ErrorCode::kMalformed, "table: missing");
  static const TableRules& kRules = WireRules().Of("tarn.wire.TableSpec");
  const auto& bytes = *reinterpret_cast<const flatbuffers::Table*>(table);
  if (Status status = Check(kRules, bytes, std::numeric_limits<std::size_t>::max()); !status)
    return Fail(status.error().code, "table." + status.error().message);
  TableSpec spec;
  table->UnPackTo(&spec);
  return spec;
}

namespace wire {
namespace {

template <typename Wire, typename Core>
constexpr bool SameEnd(Wire wire_last, Core core_last) {
  return static_cast<unsigned>(wire_last) == static_cast<unsigned>(core_last);
}
static_assert(SameEnd(ValueCodec::MAX, tarn::ValueCodec::kTopK));
static_assert(SameEnd(TableKind::MAX, tarn::TableKind::kSparse));
static_assert(SameEnd(InitializerKind::MAX, tarn::InitializerKind::kNormal));
static_assert(SameEnd(ScheduleKind::MAX, tarn::ScheduleKind::kCosine));
static_assert(SameEnd(ConsistencyMode::MAX, tarn::ConsistencyMode::kAsp));
static_assert(SameEnd(ApplyMode::MAX, tarn::ApplyMode::kAggregated));

// Enumerators have the same numbers in both types; read values are checked before.
template <typename To, typename From>
To Cast(From value) {
  return static_cast<To>(value);
}

tarn::LifeSpec UnPackLife(const LifeSpec* m) {
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

// In order of OptimizerKind.
constexpr std::string_view kKinds[] = {"sgd",     "momentum", "nesterov", "adagrad", "row_wise_adagrad",
                                       "rmsprop", "adam",     "adamw",    "ftrl"};
static_assert(std::size(kKinds) == static_cast<std::size_t>(OptimizerKind::MAX) + 1);

tarn::OptimizerSpec UnPackOptimizer(const OptimizerSpec& m) {
  const ScheduleSpec& s = m.schedule();
  const std::string_view kind = kKinds[static_cast<std::size_t>(m.kind())];
  const std::pair<std::string_view, float> all[] = {{"momentum", m.momentum()},
                                                    {"rho", m.rho()},
                                                    {"beta1", m.beta1()},
                                                    {"beta2", m.beta2()},
                                                    {"epsilon", m.epsilon()},
                                                    {"initial_accumulator", m.initial_accumulator()},
                                                    {"weight_decay", m.weight_decay()},
                                                    {"ftrl_beta", m.ftrl_beta()},
                                                    {"ftrl_l1", m.ftrl_l1()},
                                                    {"ftrl_l2", m.ftrl_l2()}};
  NamedOptions options;
  for (const auto& [name, value] : all)
    if (FindUpdateRule(kind)->Has(name)) options.emplace(name, value);
  return {.kind = kind,
          .learning_rate = m.learning_rate(),
          .options = std::move(options),
          .l2 = m.l2(),
          .clip_value = m.clip_value(),
          .clip_norm = m.clip_norm(),
          .schedule = {.kind = Cast<tarn::ScheduleKind>(s.kind()),
                       .warmup_clocks = s.warmup_clocks(),
                       .period_clocks = s.period_clocks(),
                       .factor = s.factor()}};
}

OptimizerSpec PackOptimizer(const tarn::OptimizerSpec& o) {
  const ScheduleSpec schedule(Cast<ScheduleKind>(o.schedule.kind), o.schedule.warmup_clocks, o.schedule.period_clocks,
                              o.schedule.factor);
  const auto kind = std::ranges::find(kKinds, std::string_view(o.kind)) - kKinds;
  const auto option = [&](std::string_view name) { return OptionOf(o, name); };
  return OptimizerSpec(static_cast<OptimizerKind>(kind), o.learning_rate, option("momentum"), option("rho"),
                       option("beta1"), option("beta2"), option("epsilon"), option("initial_accumulator"),
                       option("weight_decay"), option("ftrl_beta"), option("ftrl_l1"), option("ftrl_l2"), o.l2,
                       o.clip_value, o.clip_norm, schedule);
}

}  // namespace

void TableSpec::UnPackTo(TableSpecT* o, const flatbuffers::resolver_function_t*) const {
  *o = {.id = tarn::TableId(id()),
        .name = name() == nullptr ? std::string() : name()->str(),
        .kind = Cast<tarn::TableKind>(kind()),
        .dim = dim(),
        .rows = rows(),
        .initializer = {Cast<tarn::InitializerKind>(initializer()->kind()), initializer()->a(), initializer()->b()},
        .optimizer = UnPackOptimizer(*optimizer()),
        .consistency = {Cast<tarn::ConsistencyMode>(consistency()->mode()), consistency()->staleness(),
                        Cast<tarn::ApplyMode>(consistency()->apply())},
        .pull_codec = Cast<tarn::ValueCodec>(pull_codec()),
        .push_codec = Cast<tarn::ValueCodec>(push_codec()),
        .row_codec = Cast<tarn::ValueCodec>(row_codec()),
        .life = UnPackLife(life()),
        .top_k = top_k() == nullptr ? tarn::TopKSpec() : tarn::TopKSpec{top_k()->share(), top_k()->residual_bytes()}};
}

flatbuffers::Offset<TableSpec> CreateTableSpec(flatbuffers::FlatBufferBuilder& builder, const TableSpecT* o,
                                               const flatbuffers::rehasher_function_t*) {
  const InitializerSpec initializer(Cast<InitializerKind>(o->initializer.kind), o->initializer.a, o->initializer.b);
  const OptimizerSpec optimizer = PackOptimizer(o->optimizer);
  const ConsistencySpec consistency(Cast<ConsistencyMode>(o->consistency.mode), o->consistency.staleness,
                                    Cast<ApplyMode>(o->consistency.apply));
  const tarn::LifeSpec& l = o->life;
  const LifeSpec life(l.on, l.admit_count, l.admit_probability, l.min_score, l.score_decay, l.expire_clocks,
                      l.expire_seconds, l.rows_max, l.sweep_clocks);
  const TopKSpec top_k(o->top_k.share, o->top_k.residual_bytes);
  const auto name = builder.CreateString(o->name);
  return CreateTableSpec(builder, o->id.value, name, Cast<TableKind>(o->kind), o->dim, o->rows, &initializer,
                         &optimizer, &consistency, Cast<ValueCodec>(o->pull_codec), Cast<ValueCodec>(o->push_codec),
                         Cast<ValueCodec>(o->row_codec), l == tarn::LifeSpec{} ? nullptr : &life,
                         o->top_k == tarn::TopKSpec() ? nullptr : &top_k);
}

}  // namespace wire
}  // namespace tarn
