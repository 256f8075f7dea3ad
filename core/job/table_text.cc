#include "core/job/table_text.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "core/job/config_tree.h"
#include "core/job/job_fields.h"
#include "core/job/optimizer_section.h"
#include "core/job/section_reader.h"
#include "core/limits.h"

namespace tarn {
namespace {

constexpr Range kFloats{-std::numeric_limits<float>::max(), std::numeric_limits<float>::max()};

Status ReadInitializer(SectionReader in, InitializerSpec& out) {
  in.Name("kind", out.kind);
  switch (out.kind) {
    case InitializerKind::kZero: break;
    case InitializerKind::kConstant: in.Number("value", out.a, kFloats); break;
    case InitializerKind::kUniform:
      in.Number("low", out.a, kFloats);
      in.Number("high", out.b, kFloats);
      break;
    case InitializerKind::kNormal:
      in.Number("mean", out.a, kFloats);
      in.Number("stddev", out.b, kFloats);
      break;
  }
  return in.Finish();
}

}  // namespace

Expected<TableSpec> ParseTable(std::string_view name, std::string_view text, const Job& job) {
  const std::string origin = fmt::format("table '{}'", name);
  const Expected<ConfigNode> root = ParseConfig(text, origin);
  if (!root) return std::unexpected(root.error());
  TableSpec spec;
  spec.name = name;
  SectionReader in(&*root, "", origin, "key");
  in.Name("kind", spec.kind);
  in.Integer("dim", spec.dim, 1, limits::kRowDimMax);
  in.Integer("rows", spec.rows, 0, kJobInt64Max);
  in.Name("pushes", spec.pushes);
  SectionReader initializer(in.Section("initializer"), "initializer", origin);
  if (!in.Has("optimizer"))
    spec.optimizer = spec.kind == TableKind::kDense ? job.optimizer.dense : job.optimizer.embedding;
  SectionReader optimizer(in.Section("optimizer"), "optimizer", origin);
  TARN_RETURN_IF_ERROR(in.Finish());
  TARN_RETURN_IF_ERROR(ReadInitializer(std::move(initializer), spec.initializer));
  TARN_RETURN_IF_ERROR(ReadTableOptimizer(std::move(optimizer), spec.optimizer));
  spec = AsRun(job, std::move(spec));
  TARN_RETURN_IF_ERROR(Validate(spec));
  return spec;
}

}  // namespace tarn
