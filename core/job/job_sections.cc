#include "core/job/job_sections.h"

#include "core/job/job.h"
#include "core/job/job_fields.h"
#include "core/table/compression_fields.h"

namespace tarn {
namespace {

// A visitor for core/job/job_fields.h that searches for a key.
struct KeySearch {
  std::string_view key;
  bool found = false;

  void Compare(std::string_view name) { found = found || name == key; }
  template <typename... Rest>
  void Integer(std::string_view name, Rest&&...) {
    Compare(name);
  }
  template <typename... Rest>
  void Number(std::string_view name, Rest&&...) {
    Compare(name);
  }
  template <typename... Rest>
  void Integers(std::string_view name, Rest&&...) {
    Compare(name);
  }
  template <typename T>
  void Text(std::string_view name, const T&, TextRule) {
    Compare(name);
  }
  template <typename T>
  void Name(std::string_view name, const T&) {
    Compare(name);
  }
  template <typename T>
  void Bins(std::string_view name, const T&) {
    Compare(name);
  }
  void Bytes(std::string_view name, std::uint64_t) { Compare(name); }
  void Boolean(std::string_view name, bool) { Compare(name); }
  void Draws(std::string_view name, const Distribution&) { Compare(name); }
};

}  // namespace

std::vector<std::string> SectionsWithKey(std::string_view key) {
  const Job job;
  std::vector<std::string> sections;
  const auto look = [&](const char* section, auto visit) {
    KeySearch search{key};
    visit(search);
    if (search.found) sections.emplace_back(section);
  };
  look("[job]", [&](auto& f) { VisitJobSection(f, job.job); });
  look("[fleet]", [&](auto& f) {
    VisitFleet(f, job.fleet);
    VisitLanes(f, job.fleet);
  });
  look("[consistency]", [&](auto& f) {
    VisitConsistency(f, job.consistency);
    VisitWorkerCache(f, job.worker_cache);
  });
  look("[storage]", [&](auto& f) { VisitStorage(f, job.storage); });
  look("[data]", [&](auto& f) { VisitData(f, job.data); });
  look("[model]", [&](auto& f) { VisitModel(f, job.model); });
  look("[train]", [&](auto& f) {
    VisitTrain(f, job.train);
    VisitBatchShares(f, job.train);
    VisitHotRows(f, job.train.hot_rows);
    VisitTrainExecution(f, job.train);
  });
  look("[local]", [&](auto& f) {
    f.Name("method", job.local.method);
    f.Integer("steps", job.local.steps);
    f.Integer("from_epoch", job.local.from_epoch);
    f.Number("prox", job.local.prox);
    f.Number("moving_rate", job.local.moving_rate);
  });
  look("[delays]", [&](auto& f) { VisitDelays(f, job.delays); });
  look("[optimizer]", [&](auto& f) {
    VisitOptimizer(f, job.optimizer.linear);
    for (const RuleOption* option : RuleOptions()) f.Number(option->name, option->by_default, option->range);
  });
  const TableOverride table;
  look("[tables.NAME]", [&](auto& f) {
    VisitCodecs(f, table);
    VisitCompression(f, table.compression);
    VisitLife(f, table.life);
  });
  return sections;
}

}  // namespace tarn
