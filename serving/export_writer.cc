#include "serving/export_writer.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/names.h"
#include "core/table/table_shape.h"
#include "export_generated.h"
#include "kernels/convert.h"
#include "serving/export_format.h"

namespace tarn::serving {

namespace {

constexpr std::size_t kSectionBytes = std::size_t{4} << 20;

void AppendValues(std::span<const float> values, ValueCodec codec, std::vector<std::byte>* out) {
  const std::size_t before = out->size();
  out->resize(before + values.size() * CodecBytes(codec));
  kernels::EncodeValues(codec, values.size(), values.data(), out->data() + before);
}

}  // namespace

class ExportWriter::Impl {
 public:
  Impl(AtomicFile file, ExportInfo info) : file_(std::move(file)), info_(std::move(info)) {}

  Status BeginTable(const TableSpec& spec, std::uint64_t salt, ValueCodec codec) {
    TARN_CHECK(IsPlain(codec), "the codec of an export is fp32, bf16 or fp16");
    TARN_RETURN_IF_ERROR(WriteSection());
    tables_.push_back({spec, salt, codec, 0, 0, {}});
    return {};
  }

  Status Add(PartitionId partition, Key key, std::span<const float> values) {
    TARN_CHECK(!tables_.empty() && values.size() == tables_.back().spec.dim, "values has the dim of the current table");
    TARN_RETURN_IF_ERROR(CheckRange(key, values));
    TARN_RETURN_IF_ERROR(PlaceKey(partition, key));
    keys_.push_back(key);
    AppendValues(values, tables_.back().codec, &values_);
    return {};
  }

  Status AddRemoved(PartitionId partition, Key key) {
    TARN_CHECK(!tables_.empty(), "BeginTable was called");
    TARN_RETURN_IF_ERROR(PlaceKey(partition, key));
    removed_.push_back(key);
    return {};
  }

  Expected<ExportTotals> Finish() {
    TARN_RETURN_IF_ERROR(WriteSection());
    const auto index = Index();
    TARN_RETURN_IF_ERROR(file_.WriteAt(index, end_));
    totals_.bytes = end_ + index.size();
    TARN_RETURN_IF_ERROR(WriteHeader(index));
    TARN_RETURN_IF_ERROR(file_.Commit());
    return totals_;
  }

 private:
  struct Table {
    TableSpec spec;
    std::uint64_t salt = 0;
    ValueCodec codec = ValueCodec::kFp32;
    std::uint64_t rows = 0, removed = 0;
    std::vector<fb::Section> sections;
  };

  // Trained values may exceed the range of fp16.
  Status CheckRange(Key key, std::span<const float> values) const {
    const Table& table = tables_.back();
    if (table.codec != ValueCodec::kFp16) return {};
    const std::size_t beyond = kernels::FirstBeyondFp16(values.size(), values.data());
    if (beyond == values.size()) return {};
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("table {}, key {}: {} does not fit in fp16, whose largest value is 65504: use bf16 or fp32",
                            Quoted(table.spec.name), key, values[beyond]));
  }

  // Ends the current section if it is full or of another partition, and extends the current section's range to `key`.
  Status PlaceKey(PartitionId partition, Key key) {
    const bool empty = keys_.empty() && removed_.empty();
    TARN_CHECK(empty || partition > partition_ || (partition == partition_ && key > last_), "rows are added in order");
    const std::size_t bytes = (keys_.size() + removed_.size()) * sizeof(Key) + values_.size();
    if (!empty && (partition != partition_ || bytes >= kSectionBytes)) TARN_RETURN_IF_ERROR(WriteSection());
    if (keys_.empty() && removed_.empty()) first_ = key;
    partition_ = partition;
    last_ = key;
    return {};
  }

  Status WriteSection() {
    if (keys_.empty() && removed_.empty()) return {};
    std::vector<std::byte> bytes;
    for (const auto& list : {&keys_, &removed_}) {
      const auto as_bytes = std::as_bytes(std::span(*list));
      bytes.insert(bytes.end(), as_bytes.begin(), as_bytes.end());
    }
    bytes.insert(bytes.end(), values_.begin(), values_.end());
    end_ = (end_ + kExportAlignment - 1) / kExportAlignment * kExportAlignment;
    TARN_RETURN_IF_ERROR(file_.WriteAt(bytes, end_));
    Table& table = tables_.back();
    table.sections.emplace_back(first_, last_, end_, bytes.size(), static_cast<std::uint32_t>(keys_.size()),
                                static_cast<std::uint32_t>(removed_.size()), partition_.value, Crc32(bytes));
    table.rows += keys_.size();
    table.removed += removed_.size();
    totals_.rows += keys_.size();
    totals_.removed += removed_.size();
    end_ += bytes.size();
    keys_.clear();
    removed_.clear();
    values_.clear();
    return {};
  }

  std::vector<std::byte> Index() {
    end_ = (end_ + kExportAlignment - 1) / kExportAlignment * kExportAlignment;
    flatbuffers::FlatBufferBuilder b;
    std::vector<flatbuffers::Offset<fb::ExportedTable>> tables;
    for (const Table& table : tables_) {
      const TableSpec& spec = table.spec;
      const auto name = b.CreateString(spec.name);
      const auto initializer = b.CreateString(Describe(spec.initializer));
      const auto sections = b.CreateVectorOfStructs(table.sections);
      tables.push_back(fb::CreateExportedTable(b, name, spec.kind == TableKind::kDense, spec.rows, spec.dim,
                                               static_cast<fb::Codec>(table.codec), table.salt, initializer, table.rows,
                                               table.removed, sections));
    }
    const auto job = b.CreateString(info_.job);
    const auto tables_at = b.CreateVector(tables);
    fb::FinishExportBuffer(
        b, fb::CreateExport(b, job, info_.checkpoint.value, info_.clock.value, info_.content,
                            info_.base_checkpoint.value, info_.base_content, info_.partition_bits, tables_at));
    const auto bytes = std::as_bytes(std::span(b.GetBufferPointer(), b.GetSize()));
    return {bytes.begin(), bytes.end()};
  }

  Status WriteHeader(std::span<const std::byte> index) {
    ExportHeader header{};
    std::memcpy(header.magic, kExportMagic, sizeof header.magic);
    header.version = kExportVersion;
    header.index_offset = end_;
    header.index_bytes = index.size();
    header.index_crc32 = Crc32(index);
    header.file_bytes = totals_.bytes;
    header.crc32 = Crc32(std::as_bytes(std::span(&header, 1)).subspan(kHeaderSummedFrom));
    return file_.WriteAt(std::as_bytes(std::span(&header, 1)), 0);
  }

  AtomicFile file_;
  ExportInfo info_;
  std::uint64_t end_ = sizeof(ExportHeader);
  std::vector<Table> tables_;
  ExportTotals totals_;
  // The current section.
  PartitionId partition_;
  Key first_ = 0, last_ = 0;
  std::vector<Key> keys_, removed_;
  std::vector<std::byte> values_;
};

ExportWriter::ExportWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ExportWriter::~ExportWriter() = default;

Expected<std::unique_ptr<ExportWriter>> ExportWriter::Create(const std::string& path, ExportInfo info) {
  auto file = AtomicFile::Create(path);
  if (!file) return std::unexpected(file.error());
  return std::unique_ptr<ExportWriter>(new ExportWriter(std::make_unique<Impl>(std::move(*file), std::move(info))));
}

Status ExportWriter::BeginTable(const TableSpec& spec, std::uint64_t salt, ValueCodec codec) {
  return impl_->BeginTable(spec, salt, codec);
}
Status ExportWriter::Add(PartitionId partition, Key key, std::span<const float> values) {
  return impl_->Add(partition, key, values);
}
Status ExportWriter::AddRemoved(PartitionId partition, Key key) { return impl_->AddRemoved(partition, key); }
Expected<ExportTotals> ExportWriter::Finish() { return impl_->Finish(); }

}  // namespace tarn::serving
