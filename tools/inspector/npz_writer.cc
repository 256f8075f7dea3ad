#include "tools/inspector/npz_writer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/file.h"

namespace tarn::inspector {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kNpyHeaderBytes = 128;
constexpr std::uint16_t kVersionNeeded = 45;  // ZIP64
constexpr std::uint16_t kNamesAreUtf8 = 1 << 11;
constexpr std::uint32_t kIn64Bits = 0xffffffff;  // in a 32-bit field: the value is in a 64-bit field
constexpr std::uint16_t kDosDate = (2000 - 1980) << 9 | 1 << 5 | 1;  // constant, so that equal rows give equal bytes

// Little-endian fields of a ZIP record.
class Record {
 public:
  Record& U16(std::uint64_t v) { return Put(v, 2); }
  Record& U32(std::uint64_t v) { return Put(v, 4); }
  Record& U64(std::uint64_t v) { return Put(v, 8); }
  Record& Text(const std::string& text) {
    bytes_ += text;
    return *this;
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_.data(), bytes_.size())); }

 private:
  Record& Put(std::uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(v >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

std::uint32_t Crc(std::span<const std::byte> bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string NpyHeader(const std::string& dtype, std::uint64_t rows, std::uint32_t columns) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(kNpyHeaderBytes - 10);
  text += '\0';
  const std::string shape = columns == 0 ? fmt::format("({},)", rows) : fmt::format("({}, {})", rows, columns);
  text += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", dtype, shape);
  text.resize(kNpyHeaderBytes - 1, ' ');
  return text + '\n';
}

}  // namespace

class NpzWriter::Impl {
 public:
  explicit Impl(AtomicFile file) : file_(std::move(file)) {}

  Status BeginArray(const std::string& name, const std::string& dtype, std::uint32_t columns) {
    const std::size_t item = static_cast<std::size_t>(dtype.back() - '0');
    members_.push_back({name + ".npy", dtype, columns, item * std::max(columns, 1u), end(), 0, 0});
    TARN_RETURN_IF_ERROR(Write(LocalHeader(members_.back()).bytes()));
    return Write(Record().Text(NpyHeader(dtype, 0, columns)).bytes());
  }

  Status Append(std::span<const std::byte> rows) {
    Member& member = members_.back();
    member.data_bytes += rows.size();
    member.crc = Crc(rows, member.crc);
    return Write(rows);
  }

  // Writes both headers again, because the length is now known.
  Status EndArray() {
    Member& member = members_.back();
    TARN_CHECK(member.data_bytes % member.row_bytes == 0, "whole rows");
    const Record npy = Record().Text(NpyHeader(member.dtype, member.data_bytes / member.row_bytes, member.columns));
    member.crc = static_cast<std::uint32_t>(
        ::crc32_combine(Crc(npy.bytes(), 0), member.crc, static_cast<z_off_t>(member.data_bytes)));
    TARN_RETURN_IF_ERROR(Flush());
    const Record local = LocalHeader(member);
    TARN_RETURN_IF_ERROR(file_.WriteAt(local.bytes(), member.offset));
    return file_.WriteAt(npy.bytes(), member.offset + local.bytes().size());
  }

  Expected<std::uint64_t> Finish() {
    const std::uint64_t directory = end();
    for (const Member& member : members_) TARN_RETURN_IF_ERROR(Write(DirectoryEntry(member).bytes()));
    const std::uint64_t directory_end = end();
    Record record;
    record.U32(0x06064b50).U64(44).U16(kVersionNeeded).U16(kVersionNeeded).U32(0).U32(0);
    record.U64(members_.size()).U64(members_.size()).U64(directory_end - directory).U64(directory);
    record.U32(0x07064b50).U32(0).U64(directory_end).U32(1);
    const std::uint64_t few = std::min<std::uint64_t>(members_.size(), 0xffff);
    record.U32(0x06054b50).U16(0).U16(0).U16(few).U16(few).U32(kIn64Bits).U32(kIn64Bits).U16(0);
    TARN_RETURN_IF_ERROR(Write(record.bytes()));
    TARN_RETURN_IF_ERROR(Flush());
    TARN_RETURN_IF_ERROR(file_.Commit());
    return end();
  }

 private:
  struct Member {
    std::string name, dtype;
    std::uint32_t columns = 0;
    std::size_t row_bytes = 0;
    std::uint64_t offset = 0, data_bytes = 0;
    std::uint32_t crc = 0;
    std::uint64_t bytes() const { return kNpyHeaderBytes + data_bytes; }
  };

  static Record LocalHeader(const Member& member) {
    Record record;
    record.U32(0x04034b50).U16(kVersionNeeded).U16(kNamesAreUtf8).U16(0).U16(0).U16(kDosDate).U32(member.crc);
    record.U32(kIn64Bits).U32(kIn64Bits).U16(member.name.size()).U16(20).Text(member.name);
    return record.U16(1).U16(16).U64(member.bytes()).U64(member.bytes());
  }

  static Record DirectoryEntry(const Member& member) {
    Record record;
    record.U32(0x02014b50).U16(kVersionNeeded).U16(kVersionNeeded).U16(kNamesAreUtf8).U16(0).U16(0).U16(kDosDate);
    record.U32(member.crc).U32(kIn64Bits).U32(kIn64Bits).U16(member.name.size()).U16(28).U16(0).U16(0).U16(0);
    record.U32(0).U32(kIn64Bits).Text(member.name);
    return record.U16(1).U16(24).U64(member.bytes()).U64(member.bytes()).U64(member.offset);
  }

  std::uint64_t end() const { return written_ + buffer_.size(); }

  Status Write(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return buffer_.size() < kBufferBytes ? Status{} : Flush();
  }

  Status Flush() {
    TARN_RETURN_IF_ERROR(file_.WriteAt(buffer_, written_));
    written_ += buffer_.size();
    buffer_.clear();
    return {};
  }

  AtomicFile file_;
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;
  std::vector<Member> members_;
};

NpzWriter::NpzWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NpzWriter::~NpzWriter() = default;

Expected<std::unique_ptr<NpzWriter>> NpzWriter::Create(const std::string& path) {
  auto file = AtomicFile::Create(path);
  if (!file) return std::unexpected(file.error());
  return std::unique_ptr<NpzWriter>(new NpzWriter(std::make_unique<Impl>(std::move(*file))));
}
Status NpzWriter::BeginArray(const std::string& name, const std::string& dtype, std::uint32_t columns) {
  return impl_->BeginArray(name, dtype, columns);
}
Status NpzWriter::Append(std::span<const std::byte> rows) { return impl_->Append(rows); }
Status NpzWriter::EndArray() { return impl_->EndArray(); }
Expected<std::uint64_t> NpzWriter::Finish() { return impl_->Finish(); }

}  // namespace tarn::inspector
