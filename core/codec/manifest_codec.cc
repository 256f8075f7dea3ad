// A Manifest as the bytes of its file, and back.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/codec/manifest.h"
#include "core/codec/old_tables.h"
#include "core/codec/quality_codec.h"
#include "core/codec/sealed.h"
#include "core/codec/table_codec.h"
#include "core/limits.h"
#include "manifest_generated.h"

namespace tarn {
namespace {

namespace fb = tarn::manifest;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr flatbuffers::uoffset_t kDepthMax = 16;
constexpr double kNoAuc = std::numeric_limits<double>::quiet_NaN();
constexpr SealedFormat kFormat{"TARNCKPT", "a checkpoint's manifest", 1, kManifestVersion, 3};

fb::Scores WriteScores(const Scores& s) {
  return fb::Scores(s.rows, s.log_loss, s.auc.value_or(kNoAuc), s.accuracy, s.normalized_entropy);
}

Offset<fb::EpochResult> WriteEpoch(FlatBufferBuilder& b, const EpochResult& epoch) {
  const fb::Scores train = WriteScores(epoch.train);
  const fb::Scores valid = WriteScores(epoch.valid.value_or(Scores{}));
  const fb::Scores test = WriteScores(epoch.test.value_or(Scores{}));
  return fb::CreateEpochResult(b, epoch.epoch, epoch.best, &train, epoch.valid ? &valid : nullptr,
                               epoch.test ? &test : nullptr);
}

Offset<fb::DataState> WriteData(FlatBufferBuilder& b, const DataState& data) {
  const auto rows = b.CreateVector(data.rows, 3);
  const auto trained = b.CreateVector(data.trained);
  const auto quality = wire::CreateQuality(b, &data.quality);
  return fb::CreateDataState(b, rows, data.split_rows, data.epoch, data.base.value, data.ceiling.value, trained,
                             quality);
}

std::vector<Offset<wire::CheckpointFile>> WriteFiles(FlatBufferBuilder& b, const std::vector<CheckpointFile>& files) {
  std::vector<Offset<wire::CheckpointFile>> out;
  out.reserve(files.size());
  for (const CheckpointFile& file : files) out.push_back(wire::CreateCheckpointFile(b, &file));
  return out;
}

std::vector<Offset<fb::WorkerBlob>> WriteBlobs(FlatBufferBuilder& b, const std::vector<WorkerBlob>& blobs) {
  std::vector<Offset<fb::WorkerBlob>> out;
  out.reserve(blobs.size());
  for (const WorkerBlob& blob : blobs) {
    const auto file = wire::CreateCheckpointFile(b, &blob.file);
    out.push_back(fb::CreateWorkerBlob(b, blob.rank.value, blob.incarnation.value, file, blob.program_state));
  }
  return out;
}

Offset<fb::Generation> WriteGeneration(FlatBufferBuilder& b, const Generation& g) {
  const auto files_at = b.CreateVector(WriteFiles(b, g.files));
  const auto tables_at = b.CreateVectorOfNativeStructs<wire::CheckpointTable>(g.tables);
  return fb::CreateGeneration(b, g.id.value, g.clock.value, files_at, tables_at, g.state_hash);
}

std::string BodyOf(const Manifest& m) {
  FlatBufferBuilder b;
  const auto job_text = b.CreateString(m.job_text);
  std::vector<Offset<wire::TableSpec>> tables;
  tables.reserve(m.tables.size());
  for (const TableSpec& spec : m.tables) tables.push_back(wire::CreateTableSpec(b, &spec));
  std::vector<Offset<fb::Generation>> generations;
  generations.reserve(m.generations.size());
  for (const Generation& generation : m.generations) generations.push_back(WriteGeneration(b, generation));
  std::vector<Offset<fb::EpochResult>> epochs;
  epochs.reserve(m.epochs.size());
  for (const EpochResult& epoch : m.epochs) epochs.push_back(WriteEpoch(b, epoch));
  const auto tables_at = b.CreateVector(tables);
  const auto generations_at = b.CreateVector(generations);
  const auto epochs_at = b.CreateVector(epochs);
  const auto data = WriteData(b, m.data);
  const auto best = b.CreateString(m.best_checkpoint);
  const auto blobs_at = b.CreateVector(WriteBlobs(b, m.blobs));
  fb::FinishManifestBuffer(
      b, fb::CreateManifest(b, job_text, m.fingerprint, m.id.value, m.partition_bits, {}, {}, m.state_hash.value_or(0),
                            m.next_incarnation.value, m.resume_clock.value, data, epochs_at, m.samples,
                            m.batches_repeated, m.batches_behind, m.workers_died, m.seconds, m.train_seconds, best,
                            generations_at, m.state_hash.has_value(), blobs_at, m.best_lost, tables_at));
  return {reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize()};
}

// Reads a verified buffer. bad() names a field with an invalid value, "NAME (REASON)"; empty if all are valid.
class Reader {
 public:
  Manifest Read(const fb::Manifest& m, std::uint32_t version) {
    Manifest out;
    out.job_text = Text(m.job_text());
    out.fingerprint = m.fingerprint();
    out.id = CheckpointId(m.id());
    out.partition_bits = m.partition_bits();
    if (out.partition_bits > limits::kPartitionBitsMax)
      bad_ = fmt::format("partition_bits ({}, expected at most {})", out.partition_bits, limits::kPartitionBitsMax);
    if (out.id.value > limits::kCheckpointIdMax)
      bad_ = fmt::format("id ({}, expected at most {})", out.id.value, limits::kCheckpointIdMax);
    if (m.tables() != nullptr)
      for (const wire::TableSpec* spec : *m.tables()) out.tables.push_back(Checked(DecodeTable(spec)));
    if (m.tables_3() != nullptr)
      for (const fb::TableSpec3* spec : *m.tables_3()) out.tables.push_back(Checked(DecodeOldTable(spec)));
    CheckFieldsOfVersion(m, version);
    if (version == 1) {
      out.generations.push_back({out.id, Clock(m.resume_clock()), ReadFiles(m.files()), {}, m.state_hash()});
    } else if (m.generations() != nullptr) {
      for (const fb::Generation* generation : *m.generations()) out.generations.push_back(ReadGeneration(*generation));
    }
    if (m.blobs() != nullptr)
      for (const fb::WorkerBlob* blob : *m.blobs()) out.blobs.push_back(ReadBlob(*blob));
    CheckGenerations(out);
    if (version == 1 || m.whole_hash()) out.state_hash = m.state_hash();
    out.next_incarnation = Incarnation(m.next_incarnation());
    out.resume_clock = Clock(m.resume_clock());
    out.data = ReadData(*m.data());
    if (m.epochs() != nullptr)
      for (const fb::EpochResult* epoch : *m.epochs()) out.epochs.push_back(ReadEpoch(*epoch));
    out.samples = m.samples();
    out.batches_repeated = m.batches_repeated();
    out.batches_behind = m.batches_behind();
    out.workers_died = m.workers_died();
    out.seconds = m.seconds();
    out.train_seconds = m.train_seconds();
    out.best_checkpoint = Text(m.best_checkpoint());
    out.best_lost = m.best_lost();
    return out;
  }
  const std::string& bad() const { return bad_; }

 private:
  static std::string Text(const flatbuffers::String* text) { return text == nullptr ? std::string() : text->str(); }

  TableSpec Checked(Expected<TableSpec> spec) {
    Status status = spec ? Validate(*spec) : Status(std::unexpected(spec.error()));
    if (status) return *std::move(spec);
    if (bad_.empty()) bad_ = fmt::format("tables ({})", status.error().message);
    return {};
  }

  static std::vector<CheckpointFile> ReadFiles(const flatbuffers::Vector<Offset<wire::CheckpointFile>>* files) {
    std::vector<CheckpointFile> out;
    if (files == nullptr) return out;
    for (const wire::CheckpointFile* file : *files) out.push_back(ReadFile(*file));
    return out;
  }

  static CheckpointFile ReadFile(const wire::CheckpointFile& file) {
    CheckpointFile out;
    file.UnPackTo(&out);
    return out;
  }

  WorkerBlob ReadBlob(const fb::WorkerBlob& m) {
    if (m.file() == nullptr) bad_ = "blobs (no file)";
    return {WorkerRank(m.rank()), Incarnation(m.incarnation()),
            m.file() == nullptr ? CheckpointFile() : ReadFile(*m.file()), m.program_state()};
  }

  Generation ReadGeneration(const fb::Generation& m) {
    Generation out{CheckpointId(m.id()), Clock(m.clock()), ReadFiles(m.files()), {}, m.state_hash()};
    if (m.tables() == nullptr) return out;
    // The verifier checks only alignment to 4 bytes.
    if (m.tables()->size() > 0 &&
        reinterpret_cast<std::uintptr_t>(m.tables()->Data()) % alignof(wire::CheckpointTable) != 0) {
      bad_ = "generations.tables (not aligned)";
      return out;
    }
    for (const wire::CheckpointTable* table : *m.tables()) out.tables.push_back(flatbuffers::UnPack(*table));
    return out;
  }

  // The checksum of versions 1 and 2 does not cover the version number. A damaged number is detected because versions
  // have different fields.
  void CheckFieldsOfVersion(const fb::Manifest& m, std::uint32_t version) {
    const bool has_files = m.files() != nullptr, has_generations = m.generations() != nullptr;
    if (has_files != (version == 1) || has_generations == (version == 1))
      bad_ = fmt::format("{} (in format version {})", version == 1 ? "generations" : "files", version);
    const bool has_tables = m.tables() != nullptr, has_old_tables = m.tables_3() != nullptr;
    if (has_tables != (version > 3) || has_old_tables == (version > 3))
      bad_ = fmt::format("tables (in format version {})", version);
  }

  // Checks that generations and blobs are in ascending order, that no file occurs twice, and the sizes of blobs.
  void CheckGenerations(const Manifest& m) {
    std::set<std::string> names;
    for (std::size_t i = 0; i < m.generations.size(); ++i) {
      if (i > 0 && m.generations[i].id <= m.generations[i - 1].id) bad_ = "generations (not in ascending order)";
      for (const CheckpointFile& file : m.generations[i].files)
        if (!names.insert(file.name).second) bad_ = fmt::format("generations (file '{}' twice)", file.name);
    }
    if (m.blobs.size() > limits::kBlobsMax) bad_ = fmt::format("blobs ({} of them)", m.blobs.size());
    for (std::size_t i = 0; i < m.blobs.size(); ++i) {
      if (i > 0 && m.blobs[i].rank <= m.blobs[i - 1].rank) bad_ = "blobs (not in ascending order)";
      if (!names.insert(m.blobs[i].file.name).second)
        bad_ = fmt::format("blobs (file '{}' twice)", m.blobs[i].file.name);
      if (m.blobs[i].file.bytes == 0 || m.blobs[i].file.bytes > limits::kBlobBytesMax)
        bad_ = fmt::format("blobs (file '{}' of {} bytes)", m.blobs[i].file.name, m.blobs[i].file.bytes);
    }
  }

  Quality ReadQuality(const wire::Quality* m) {
    Quality out;
    if (m == nullptr) return out;
    if (Status status = CheckQuality(*m); !status)
      bad_ = fmt::format("data.quality ({})", status.error().message);
    else
      m->UnPackTo(&out);
    return out;
  }

  DataState ReadData(const fb::DataState& m) {
    DataState out;
    if (m.rows() == nullptr || m.rows()->size() != 3) {
      bad_ = fmt::format("data.rows ({} items, expected 3)", m.rows() == nullptr ? 0 : m.rows()->size());
      return out;
    }
    for (std::uint32_t i = 0; i < 3; ++i) out.rows[i] = m.rows()->Get(i);
    out.split_rows = m.split_rows();
    out.epoch = m.epoch();
    out.base = Clock(m.base());
    out.ceiling = Clock(m.ceiling());
    if (m.trained() != nullptr) out.trained.assign(m.trained()->begin(), m.trained()->end());
    if (out.rows[0] != 0 && (out.split_rows == 0 || out.trained.size() != (out.rows[0] - 1) / out.split_rows + 1))
      bad_ = fmt::format("data.trained ({} items for {} rows in splits of {})", out.trained.size(), out.rows[0],
                         out.split_rows);
    out.quality = ReadQuality(m.quality());
    return out;
  }

  static Scores ReadScores(const fb::Scores* m) {
    if (m == nullptr) return {};
    const auto auc = std::isnan(m->auc()) ? std::nullopt : std::optional(m->auc());
    return {m->rows(), m->log_loss(), auc, m->accuracy(), m->normalized_entropy()};
  }

  static EpochResult ReadEpoch(const fb::EpochResult& m) {
    EpochResult out;
    out.epoch = m.epoch();
    out.best = m.best();
    out.train = ReadScores(m.train());
    if (m.valid() != nullptr) out.valid = ReadScores(m.valid());
    if (m.test() != nullptr) out.test = ReadScores(m.test());
    return out;
  }

  std::string bad_;
};

std::unexpected<Error> Corrupt(const std::string& origin, std::string_view what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", origin, what));
}

}  // namespace

std::string EncodeManifest(const Manifest& manifest) { return Seal(kFormat, BodyOf(manifest)); }

Expected<Manifest> DecodeManifest(std::string_view bytes, const std::string& origin) {
  const auto unsealed = Unseal(kFormat, bytes, origin);
  if (!unsealed) return std::unexpected(unsealed.error());
  const auto body = unsealed->body();
  flatbuffers::Verifier verifier(body.data(), body.size(), kDepthMax, limits::kManifestTablesMax);
  if (!fb::VerifyManifestBuffer(verifier)) return Corrupt(origin, "its body is not a valid FlatBuffer");
  Reader reader;
  Manifest manifest = reader.Read(*fb::GetManifest(body.data()), unsealed->version);
  if (!reader.bad().empty()) return Corrupt(origin, fmt::format("field {} is invalid", reader.bad()));
  return manifest;
}

}  // namespace tarn
