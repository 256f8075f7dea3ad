#include "serving/export_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "core/file.h"
#include "core/limits.h"
#include "export_generated.h"
#include "kernels/convert.h"
#include "serving/export_format.h"

namespace tarn::serving {

class ExportFile::Mapping {
 public:
  Mapping(void* address, std::size_t bytes) : address_(address), bytes_(bytes) {}
  ~Mapping() { ::munmap(address_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), bytes_}; }

 private:
  void* address_;
  std::size_t bytes_;
};

namespace {

std::unexpected<Error> Corrupt(const std::string& origin, std::string_view what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", origin, what));
}

Expected<ExportHeader> ReadHeader(std::span<const std::byte> bytes, const std::string& origin) {
  ExportHeader header;
  if (bytes.size() < sizeof header)
    return Corrupt(origin, fmt::format("{} bytes, expected at least {}", bytes.size(), sizeof header));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kExportMagic, sizeof kExportMagic) != 0)
    return Corrupt(origin, "not an export: expected \"TARNEXPT\" at the beginning");
  if (header.version == 0 || header.version > kExportVersion)
    return Fail(ErrorCode::kUnsupported, fmt::format("{}: format version {}, expected 1 to {}: a newer tarn wrote it",
                                                     origin, header.version, kExportVersion));
  const std::uint32_t sum = Crc32(bytes.first(sizeof header).subspan(kHeaderSummedFrom));
  if (sum != header.crc32)
    return Corrupt(origin, fmt::format("damaged header: its CRC-32 is {:08x}, expected {:08x}", sum, header.crc32));
  if (header.file_bytes != bytes.size())
    return Corrupt(origin, fmt::format("{} bytes, expected {}", bytes.size(), header.file_bytes));
  if (header.index_offset > bytes.size() || header.index_bytes > bytes.size() - header.index_offset)
    return Corrupt(origin, fmt::format("its index is outside the file: {} bytes at {}, but the file has {}",
                                       header.index_bytes, header.index_offset, bytes.size()));
  return header;
}

bool ByPlace(const ExportSection& a, const ExportSection& b) {
  return a.partition != b.partition ? a.partition < b.partition : a.first < b.first;
}

}  // namespace

std::size_t ExportTable::row_bytes() const { return dim * CodecBytes(codec); }

ExportFile::ExportFile() = default;
ExportFile::ExportFile(ExportFile&&) noexcept = default;
ExportFile& ExportFile::operator=(ExportFile&&) noexcept = default;
ExportFile::~ExportFile() = default;

Expected<ExportFile> ExportFile::Open(const std::string& path, Options options) {
  // O_NONBLOCK: opening a pipe would otherwise wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::unexpected(SystemError(path, "open", errno));
  struct stat status{};
  const bool is_file = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(is_file ? status.st_size : 0);
  void* address = size == 0 ? MAP_FAILED : ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int failure = errno;
  ::close(fd);
  if (!is_file) return Fail(ErrorCode::kIo, fmt::format("{}: not a regular file", path));
  if (size == 0) return Corrupt(path, fmt::format("0 bytes, expected at least {}", sizeof(ExportHeader)));
  if (address == MAP_FAILED) return std::unexpected(SystemError(path, "map", failure));
  ExportFile file;
  file.mapping_ = std::make_unique<Mapping>(address, size);
  TARN_RETURN_IF_ERROR(file.Read(file.mapping_->bytes(), path, options));
  return file;
}

Expected<ExportFile> ExportFile::Parse(std::span<const std::byte> bytes, const std::string& origin, Options options) {
  TARN_CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 == 0, "the bytes of an export must be aligned");
  ExportFile file;
  TARN_RETURN_IF_ERROR(file.Read(bytes, origin, options));
  return file;
}

Status ExportFile::Read(std::span<const std::byte> bytes, const std::string& origin, Options options) {
  bytes_ = bytes;
  const auto header = ReadHeader(bytes, origin);
  if (!header) return std::unexpected(header.error());
  const auto index = bytes.subspan(header->index_offset, header->index_bytes);
  const std::uint32_t sum = Crc32(index);
  if (sum != header->index_crc32)
    return Corrupt(origin,
                   fmt::format("damaged index: its CRC-32 is {:08x}, expected {:08x}", sum, header->index_crc32));
  TARN_RETURN_IF_ERROR(ReadIndex(index, origin));
  return CheckSections(origin, options.verify);
}

Status ExportFile::ReadIndex(std::span<const std::byte> index, const std::string& origin) {
  // FlatBuffers are read in place and must be aligned.
  std::vector<std::uint64_t> aligned(index.size() / 8 + 1);
  std::memcpy(aligned.data(), index.data(), index.size());
  const auto* data = reinterpret_cast<const std::uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(data, index.size());
  if (!fb::VerifyExportBuffer(verifier)) return Corrupt(origin, "its index is not a valid FlatBuffer");
  const fb::Export& m = *fb::GetExport(data);
  info_ = {m.job()->str(),    CheckpointId(m.checkpoint()),      Clock(m.clock()),
           m.content(),       CheckpointId(m.base_checkpoint()), m.base_content(),
           m.partition_bits()};
  if (info_.partition_bits > limits::kPartitionBitsMax)
    return Corrupt(origin, fmt::format("partition_bits is {}, expected at most {}", info_.partition_bits,
                                       limits::kPartitionBitsMax));
  if (m.tables() == nullptr) return {};
  for (const fb::ExportedTable* t : *m.tables()) {
    if (t->codec() > fb::Codec::MAX || t->dim() == 0 || t->dim() > limits::kRowDimMax ||
        (t->dense() && t->dense_rows() == 0))
      return Corrupt(
          origin,
          fmt::format("table '{}' is invalid: codec {} (expected 0 to {}), dim {} (expected 1 to {}), {} dense rows",
                      t->name()->str(), int(t->codec()), int(fb::Codec::MAX), t->dim(), limits::kRowDimMax,
                      t->dense_rows()));
    ExportTable& table = tables_.emplace_back();
    table.name = t->name()->str();
    table.dim = t->dim();
    table.codec = static_cast<ValueCodec>(t->codec());
    table.dense = t->dense();
    table.dense_rows = t->dense_rows();
    table.initializer = t->initializer() == nullptr ? "" : t->initializer()->str();
    table.rows = t->rows();
    table.removed = t->removed();
    TableSpec spec;
    spec.kind = table.dense ? TableKind::kDense : TableKind::kSparse;
    spec.rows = table.dense_rows;
    table.position = Positioner(spec, t->salt());
    if (t->sections() == nullptr) continue;
    // The verifier checks only 4-byte alignment.
    if (t->sections()->size() > 0 &&
        reinterpret_cast<std::uintptr_t>(t->sections()->Data()) % alignof(fb::Section) != 0)
      return Corrupt(origin, fmt::format("the sections of table '{}' are not aligned", table.name));
    for (const fb::Section* s : *t->sections())
      table.sections.push_back({s->first_key(), s->last_key(), s->offset(), s->bytes(), s->rows(), s->removed(),
                                PartitionId(s->partition()), s->crc32()});
  }
  return {};
}

Status ExportFile::CheckSections(const std::string& origin, bool verify) const {
  for (const ExportTable& table : tables_) {
    std::uint64_t rows = 0, removed = 0;
    for (std::size_t i = 0; i < table.sections.size(); ++i) {
      const ExportSection& s = table.sections[i];
      rows += s.rows;
      removed += s.removed;
      auto bad = [&](std::string_view what) {
        return Corrupt(origin, fmt::format("section {} of table '{}' at {}: {}", i, table.name, s.offset, what));
      };
      // At most 2^33 x (16 K + 16): no overflow.
      const std::uint64_t bytes =
          (std::uint64_t{s.rows} + s.removed) * sizeof(Key) + std::uint64_t{s.rows} * table.row_bytes();
      if (s.bytes != bytes || s.offset % kExportAlignment != 0)
        return bad(fmt::format("{} bytes, expected {} at a multiple of {}", s.bytes, bytes, kExportAlignment));
      if (s.offset > bytes_.size() || s.bytes > bytes_.size() - s.offset) return bad("it is outside the file");
      if (s.partition.value >> info_.partition_bits != 0 || s.first > s.last)
        return bad(fmt::format("keys {} to {} of partition {}, expected ascending keys and a partition below {}",
                               s.first, s.last, s.partition.value, std::uint64_t{1} << info_.partition_bits));
      if (i > 0 && (!ByPlace(table.sections[i - 1], s) ||
                    (table.sections[i - 1].partition == s.partition && table.sections[i - 1].last >= s.first)))
        return bad("it is out of order");
      if (!verify) continue;
      if (const std::uint32_t sum = Crc32(bytes_.subspan(s.offset, s.bytes)); sum != s.crc32)
        return bad(fmt::format("damaged: its CRC-32 is {:08x}, expected {:08x}", sum, s.crc32));
      for (const auto keys : {Keys(s), Removed(s)})
        if (std::ranges::adjacent_find(keys, std::greater_equal()) != keys.end() ||
            (!keys.empty() && (keys.front() < s.first || keys.back() > s.last)))
          return bad("its keys are not ascending, or outside its range");
    }
    if (rows != table.rows || removed != table.removed)
      return Corrupt(origin, fmt::format("the counts of table '{}' do not match its sections", table.name));
  }
  return {};
}

const ExportTable* ExportFile::FindTable(std::string_view name) const {
  const auto it = std::ranges::find(tables_, name, &ExportTable::name);
  return it == tables_.end() ? nullptr : &*it;
}

std::span<const Key> ExportFile::Keys(const ExportSection& section) const {
  return {reinterpret_cast<const Key*>(bytes_.data() + section.offset), section.rows};
}

std::span<const Key> ExportFile::Removed(const ExportSection& section) const {
  return {reinterpret_cast<const Key*>(bytes_.data() + section.offset) + section.rows, section.removed};
}

std::span<const std::byte> ExportFile::Values(const ExportSection& section) const {
  const std::size_t keys = (std::size_t{section.rows} + section.removed) * sizeof(Key);
  return bytes_.subspan(section.offset + keys, section.bytes - keys);
}

ExportFile::Found ExportFile::Find(const ExportTable& table, Key key) const {
  if (table.dense && key >= table.dense_rows) return {};
  const PartitionId partition = PartitionOf(table.position(key), info_.partition_bits);
  const ExportSection wanted{.first = key, .partition = partition};
  auto section = std::ranges::upper_bound(table.sections, wanted, ByPlace);
  if (section == table.sections.begin()) return {};
  --section;
  if (section->partition != partition || key > section->last) return {};
  const auto keys = Keys(*section);
  const auto at = std::ranges::lower_bound(keys, key);
  if (at != keys.end() && *at == key) {
    const auto index = static_cast<std::size_t>(at - keys.begin());
    return {.row = Values(*section).subspan(index * table.row_bytes(), table.row_bytes())};
  }
  return {.removed = std::ranges::binary_search(Removed(*section), key)};
}

void DecodeValues(ValueCodec codec, std::span<const std::byte> row, std::span<float> out) {
  TARN_CHECK(row.size() == out.size() * CodecBytes(codec), "out has the table's dim");
  kernels::DecodeValues(codec, out.size(), row.data(), out.data());
}

}  // namespace tarn::serving
