#include "core/codec/table_codec.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/codec/schema_check.h"
#include "core/limits.h"

namespace tarn {

Expected<TableSpec> DecodeTable(const wire::TableSpec* table) {
  if (table == nullptr) return Fail(ErrorCode::kMalformed, "table: missing");
  static const TableRules& rules = WireRules().Of("tarn.wire.TableSpec");
  const auto& bytes = *reinterpret_cast<const flatbuffers::Table*>(table);
  if (Status status = Check(rules, bytes, std::numeric_limits<std::size_t>::max()); !status)
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
static_assert(SameEnd(ValueCodec::MAX, tarn::ValueCodec::kLowRank));
static_assert(SameEnd(TableKind::MAX, tarn::TableKind::kSparse));
static_assert(SameEnd(PushedValues::MAX, tarn::PushedValues::kDeltas));
static_assert(SameEnd(InitializerKind::MAX, tarn::InitializerKind::kNormal));
static_assert(SameEnd(ScheduleKind::MAX, tarn::ScheduleKind::kCosine));
static_assert(SameEnd(ConsistencyMode::MAX, tarn::ConsistencyMode::kAsp));
static_assert(SameEnd(ApplyMode::MAX, tarn::ApplyMode::kAggregated));

// Enumerators have the same numbers in both types; read values are checked before.
template <typename To, typename From>
To Cast(From value) {
  return static_cast<To>(value);
}

// Adds the options of the rule that are missing, with their default values. A stored table therefore keeps its values
// even if a later version changes a default.
// There is room for all of them unless the table has options that its rule does not know; Validate refuses those.
void AddDefaults(const RuleName& kind, NamedOptions* options) {
  const UpdateRule* rule = FindUpdateRule(kind);
  if (rule == nullptr) return;
  for (const tarn::RuleOption& option : rule->options)
    if (options->size() < limits::kRuleOptionsMax) options->emplace(option.name, option.by_default);
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

}  // namespace

void OptimizerSpec::UnPackTo(OptimizerSpecT* o, const flatbuffers::resolver_function_t*) const {
  const ScheduleSpec& s = *schedule();
  *o = {.kind = rule() == nullptr ? std::string() : rule()->str(),
        .learning_rate = learning_rate(),
        .options = {},
        .l2 = l2(),
        .clip_value = clip_value(),
        .clip_norm = clip_norm(),
        .schedule = {.kind = Cast<tarn::ScheduleKind>(s.kind()),
                     .warmup_clocks = s.warmup_clocks(),
                     .period_clocks = s.period_clocks(),
                     .factor = s.factor()}};
  if (options() != nullptr)
    for (const OptionValue* option : *options())
      o->options[option->name() == nullptr ? std::string() : option->name()->str()] =
          std::bit_cast<float>(option->bits());
  AddDefaults(o->kind, &o->options);
}

flatbuffers::Offset<OptimizerSpec> CreateOptimizerSpec(flatbuffers::FlatBufferBuilder& builder, const OptimizerSpecT* o,
                                                       const flatbuffers::rehasher_function_t*) {
  NamedOptions all = o->options;
  AddDefaults(o->kind, &all);
  std::vector<flatbuffers::Offset<OptionValue>> values;
  for (const auto& [name, value] : all) {
    const auto name_at = builder.CreateString(name);
    values.push_back(CreateOptionValue(builder, name_at, std::bit_cast<std::uint32_t>(value)));
  }
  const ScheduleSpec schedule(Cast<ScheduleKind>(o->schedule.kind), o->schedule.warmup_clocks,
                              o->schedule.period_clocks, o->schedule.factor);
  const auto rule = builder.CreateString(o->kind.value);
  const auto options = builder.CreateVector(values);
  return CreateOptimizerSpec(builder, rule, options, o->learning_rate, o->l2, o->clip_value, o->clip_norm, &schedule);
}

void TableSpec::UnPackTo(TableSpecT* o, const flatbuffers::resolver_function_t*) const {
  *o = {.id = tarn::TableId(id()),
        .name = name() == nullptr ? std::string() : name()->str(),
        .kind = Cast<tarn::TableKind>(kind()),
        .dim = dim(),
        .rows = rows(),
        .initializer = {Cast<tarn::InitializerKind>(initializer()->kind()), initializer()->a(), initializer()->b()},
        .optimizer = {},
        .consistency = {Cast<tarn::ConsistencyMode>(consistency()->mode()), consistency()->staleness(),
                        Cast<tarn::ApplyMode>(consistency()->apply()), consistency()->backup_workers(),
                        consistency()->staleness_range()},
        .pull_codec = Cast<tarn::ValueCodec>(pull_codec()),
        .push_codec = Cast<tarn::ValueCodec>(push_codec()),
        .row_codec = Cast<tarn::ValueCodec>(row_codec()),
        .life = UnPackLife(life()),
        .compression = {.warmup_clocks = topk_warmup_clocks(), .rank = push_rank()},
        .pushes = Cast<tarn::PushedValues>(pushes())};
  if (top_k() != nullptr) {
    o->compression.share = top_k()->share();
    o->compression.momentum = top_k()->momentum();
    o->compression.residual_bytes = top_k()->residual_bytes();
  }
  optimizer()->UnPackTo(&o->optimizer);
}

flatbuffers::Offset<TableSpec> CreateTableSpec(flatbuffers::FlatBufferBuilder& builder, const TableSpecT* o,
                                               const flatbuffers::rehasher_function_t*) {
  const InitializerSpec initializer(Cast<InitializerKind>(o->initializer.kind), o->initializer.a, o->initializer.b);
  const auto optimizer = CreateOptimizerSpec(builder, &o->optimizer);
  const ConsistencySpec consistency(Cast<ConsistencyMode>(o->consistency.mode), o->consistency.staleness_range,
                                    o->consistency.staleness, Cast<ApplyMode>(o->consistency.apply),
                                    o->consistency.backup_workers);
  const tarn::LifeSpec& l = o->life;
  const LifeSpec life(l.on, l.admit_count, l.admit_probability, l.min_score, l.score_decay, l.expire_clocks,
                      l.expire_seconds, l.rows_max, l.sweep_clocks);
  const tarn::CompressionSpec& c = o->compression;
  const TopKSpec top_k(c.share, c.momentum, c.residual_bytes);
  const auto name = builder.CreateString(o->name);
  return CreateTableSpec(builder, o->id.value, name, Cast<TableKind>(o->kind), o->dim, o->rows, &initializer, optimizer,
                         &consistency, Cast<ValueCodec>(o->pull_codec), Cast<ValueCodec>(o->push_codec),
                         Cast<ValueCodec>(o->row_codec), l == tarn::LifeSpec{} ? nullptr : &life,
                         c == tarn::CompressionSpec() ? nullptr : &top_k, Cast<PushedValues>(o->pushes),
                         c.warmup_clocks, c.rank);
}

}  // namespace wire
}  // namespace tarn
