#include "core/codec/old_tables.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <utility>

#include "core/codec/table_codec.h"

namespace tarn {
namespace {

// In order of OptimizerKind3.
constexpr std::string_view kKinds[] = {"sgd",     "momentum", "nesterov", "adagrad", "row_wise_adagrad",
                                       "rmsprop", "adam",     "adamw",    "ftrl"};
static_assert(std::size(kKinds) == static_cast<std::size_t>(manifest::OptimizerKind3::MAX) + 1);

OptimizerSpec UnPack(const manifest::OptimizerSpec3& m) {
  const wire::ScheduleSpec& s = m.schedule();
  OptimizerSpec spec{.kind = kKinds[static_cast<std::size_t>(m.kind())],
                     .learning_rate = m.learning_rate(),
                     .options = {},
                     .l2 = m.l2(),
                     .clip_value = m.clip_value(),
                     .clip_norm = m.clip_norm(),
                     .schedule = {.kind = static_cast<ScheduleKind>(s.kind()),
                                  .warmup_clocks = s.warmup_clocks(),
                                  .period_clocks = s.period_clocks(),
                                  .factor = s.factor()}};
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
  for (const auto& [name, value] : all)
    if (FindUpdateRule(spec.kind)->Has(name)) spec.options.emplace(name, value);
  return spec;
}

}  // namespace

// Rewrites the table in the present format, whose checks then apply.
Expected<TableSpec> DecodeOldTable(const manifest::TableSpec3* m) {
  if (m == nullptr) return Fail(ErrorCode::kMalformed, "table: missing");
  if (m->optimizer() == nullptr) return Fail(ErrorCode::kMalformed, "table.optimizer: missing");
  if (m->optimizer()->kind() > manifest::OptimizerKind3::MAX)
    return Fail(ErrorCode::kMalformed,
                fmt::format("table.optimizer.kind: value {}, expected 0 to {}",
                            static_cast<int>(m->optimizer()->kind()), static_cast<int>(manifest::OptimizerKind3::MAX)));
  flatbuffers::FlatBufferBuilder b;
  const OptimizerSpec spec = UnPack(*m->optimizer());
  const auto optimizer = wire::CreateOptimizerSpec(b, &spec);
  flatbuffers::Offset<flatbuffers::String> name;
  if (m->name() != nullptr) name = b.CreateString(m->name()->string_view());
  b.Finish(wire::CreateTableSpec(b, m->id(), name, m->kind(), m->dim(), m->rows(), m->initializer(), optimizer,
                                 m->consistency(), m->pull_codec(), m->push_codec(), m->row_codec(), m->life(),
                                 m->top_k()));
  return DecodeTable(flatbuffers::GetRoot<wire::TableSpec>(b.GetBufferPointer()));
}

}  // namespace tarn
