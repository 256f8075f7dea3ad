#include "net/data_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/container/static_vector.hpp>

#include "core/limits.h"

namespace tarn::net {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

static_assert(static_cast<unsigned>(wire::KeyCodec::MAX) == static_cast<unsigned>(KeyCodec::kHeld));
static_assert(static_cast<unsigned>(wire::PushAction::MAX) == static_cast<unsigned>(PushAction::kDelete));

// Only the first error of a message is kept.
bool Refuse(ErrorCode code, std::string text, Status* status) {
  if (*status) *status = Fail(code, std::move(text));
  return false;
}

bool CheckItems(std::size_t size, std::string_view field, Status* status, std::size_t most = limits::kPartitionsMax) {
  if (size <= most) [[likely]]
    return true;
  return Refuse(ErrorCode::kTooLarge, fmt::format("{}: {} items, expected at most {}", field, size, most), status);
}

bool CheckTables(std::size_t size, Status* status) {
  if (size >= 1 && size <= limits::kMessageTablesMax) [[likely]]
    return true;
  return Refuse(size == 0 ? ErrorCode::kMalformed : ErrorCode::kTooLarge,
                fmt::format("tables: {} items, expected 1 to {}", size, limits::kMessageTablesMax), status);
}

std::size_t SectionsOf(const PullPart& part) { return part.keys.sections.size(); }
std::size_t SectionsOf(const PushPart& part) { return part.keys.sections.size(); }
std::size_t SectionsOf(const ReplyPart& part) { return part.versions.size(); }

// Adds the sections of a part to *sum, those of the parts before it. All parts together may have as many sections as
// one part. The size of the header does not bound the sum, because parts of a hostile FlatBuffer may share one list.
void CheckSections(std::size_t sections, std::size_t* sum, Status* status) {
  *sum += sections;
  if (*sum > limits::kPartitionsMax) [[unlikely]]
    Refuse(ErrorCode::kTooLarge,
           fmt::format("sections: {} of all tables, expected at most {}", *sum, limits::kPartitionsMax), status);
}

// --- Writing; enumerators have the same numbers in both types ---

wire::ValueCodec Codec(ValueCodec codec) { return static_cast<wire::ValueCodec>(codec); }

// Writes a list of structs: convert(item) for each item.
template <typename To, typename From, typename Convert>
Offset<flatbuffers::Vector<const To*>> Structs(FlatBufferBuilder* b, const std::vector<From>& items,
                                               std::string_view field, std::size_t most, Status* status,
                                               Convert convert) {
  if (!CheckItems(items.size(), field, status, most)) return {};
  To* out = nullptr;
  const auto offset = b->CreateUninitializedVectorOfStructs(items.size(), &out);
  for (const From& item : items) *out++ = convert(item);
  return offset;
}

Offset<wire::KeyList> WriteKeys(FlatBufferBuilder* b, const KeyList& m, Status* status) {
  const auto sections = Structs<wire::Section>(
      b, m.sections, "keys.sections", limits::kPartitionsMax, status,
      [](const Section& s) { return wire::Section(s.partition.value, s.count, s.sequence.value); });
  return wire::CreateKeyList(*b, static_cast<wire::KeyCodec>(m.codec), m.first_key, m.count, sections, m.list);
}

// Writes the versions of the sections; no list if no version is known.
Offset<flatbuffers::Vector<std::uint64_t>> WriteVersions(FlatBufferBuilder* b, const std::vector<Section>& sections) {
  if (std::ranges::all_of(sections, [](const Section& s) { return s.version == kNoVersion; })) return {};
  std::uint64_t* out = nullptr;
  const auto offset = b->CreateUninitializedVector(sections.size(), &out);
  for (const Section& section : sections) *out++ = section.version.value;
  return offset;
}

Offset<flatbuffers::Vector<std::uint64_t>> WriteVersions(FlatBufferBuilder* b, const std::vector<Version>& versions) {
  if (versions.empty()) return {};
  std::uint64_t* out = nullptr;
  const auto offset = b->CreateUninitializedVector(versions.size(), &out);
  for (const Version version : versions) *out++ = version.value;
  return offset;
}

std::uint32_t Bytes(const Buffer& buffer) { return static_cast<std::uint32_t>(buffer.size()); }

Offset<wire::PullPart> WriteTable(FlatBufferBuilder* b, const PullPart& m, Status* status) {
  const auto keys = WriteKeys(b, m.keys, status);
  return wire::CreatePullPart(*b, m.table.value, Codec(m.codec), keys, Bytes(m.keys.frame));
}

Offset<wire::ReplyPart> WriteTable(FlatBufferBuilder* b, const ReplyPart& m, Status* status) {
  if (!CheckItems(m.versions.size(), "versions", status)) return {};
  const auto versions = WriteVersions(b, m.versions);
  return wire::CreateReplyPart(*b, m.table.value, Codec(m.codec), m.count, versions, Bytes(m.values), m.on_disk);
}

Offset<wire::PushPart> WriteTable(FlatBufferBuilder* b, const PushPart& m, Status* status) {
  const auto keys = WriteKeys(b, m.keys, status);
  const auto versions = WriteVersions(b, m.keys.sections);
  const auto pulled = m.pulled ? flatbuffers::Optional<wire::ValueCodec>(Codec(*m.pulled)) : flatbuffers::nullopt;
  return wire::CreatePushPart(*b, m.table.value, m.pulled_clock.value, Codec(m.codec), keys, versions, pulled,
                              static_cast<wire::PushAction>(m.action), Bytes(m.keys.frame), Bytes(m.values));
}

// Writes the parts of a message, one per table. WireTable: wire::PullPart, ...
template <typename WireTable, typename Part>
Offset<flatbuffers::Vector<Offset<WireTable>>> WriteTables(FlatBufferBuilder* b, const TableParts<Part>& parts,
                                                           Status* status) {
  if (!CheckTables(parts.size(), status)) return {};
  boost::container::static_vector<Offset<WireTable>, limits::kMessageTablesMax> written;
  std::size_t sections = 0;
  for (std::size_t i = 0; i < parts.size() && *status; ++i) {
    written.push_back(WriteTable(b, parts[i], status));
    CheckSections(SectionsOf(parts[i]), &sections, status);
  }
  if (!*status) [[unlikely]] {
    status->error().message.insert(0, "tables[].");
    return {};
  }
  return b->CreateVector(written.data(), written.size());
}

// --- Reading ---

template <typename To, typename From>
To Enum(From value, std::string_view field, Status* status) {
  if (value > From::MAX) [[unlikely]]
    Refuse(ErrorCode::kMalformed,
           fmt::format("{}: value {}, expected 0 to {}", field, static_cast<unsigned>(value),
                       static_cast<unsigned>(From::MAX)),
           status);
  return static_cast<To>(value);
}

bool Missing(std::string_view field, Status* status) {
  return Refuse(ErrorCode::kMalformed, fmt::format("{}: missing", field), status);
}

// Calls convert(item) for each item; an absent list is empty. Checks the alignment of the items: the verifier of
// FlatBuffers 2.0.8 checks only that of the list's length.
template <typename To, typename From, typename Convert>
void ReadList(const flatbuffers::Vector<const From*>* items, std::string_view field, std::size_t most, Status* status,
              std::vector<To>* out, Convert convert) {
  if (items == nullptr || !CheckItems(items->size(), field, status, most)) return;
  if (items->size() > 0 && reinterpret_cast<std::uintptr_t>(items->Data()) % alignof(From) != 0) [[unlikely]] {
    Refuse(ErrorCode::kMalformed, fmt::format("{}: items not aligned to {} bytes", field, alignof(From)), status);
    return;
  }
  out->reserve(items->size());
  for (const From* item : *items) out->push_back(convert(*item));
}

// Calls take(i, version) for each section; an absent list has no versions. Checks the alignment like ReadList.
template <typename Take>
void ReadVersions(const flatbuffers::Vector<std::uint64_t>* versions, Status* status, Take take) {
  if (versions == nullptr || !CheckItems(versions->size(), "versions", status)) return;
  if (versions->size() > 0 && reinterpret_cast<std::uintptr_t>(versions->Data()) % sizeof(std::uint64_t) != 0)
      [[unlikely]] {
    Refuse(ErrorCode::kMalformed, "versions: items not aligned to 8 bytes", status);
    return;
  }
  for (flatbuffers::uoffset_t i = 0; i < versions->size(); ++i) take(i, Version(versions->Get(i)));
}

void ReadKeys(const wire::KeyList* m, KeyList* out, Status* status) {
  if (m == nullptr) [[unlikely]] {
    Missing("keys", status);
    return;
  }
  out->codec = Enum<KeyCodec>(m->codec(), "keys.codec", status);
  out->first_key = m->first_key();
  out->count = m->count();
  out->list = m->list();
  ReadList(m->sections(), "keys.sections", limits::kPartitionsMax, status, &out->sections, [](const wire::Section& s) {
    return Section{PartitionId(s.partition()), s.count(), Sequence(s.sequence())};
  });
}

void ReadTable(const wire::PullPart& m, PayloadReader* payload, PullPart* out, Status* status) {
  out->table = TableId(m.table_id());
  out->codec = Enum<ValueCodec>(m.codec(), "codec", status);
  ReadKeys(m.keys(), &out->keys, status);
  out->keys.frame = payload->TakeKeys(m.key_bytes(), status);
}

void ReadTable(const wire::ReplyPart& m, PayloadReader* payload, ReplyPart* out, Status* status) {
  out->table = TableId(m.table_id());
  out->codec = Enum<ValueCodec>(m.codec(), "codec", status);
  out->count = m.count();
  if (m.versions() != nullptr) out->versions.reserve(std::min(m.versions()->size(), limits::kPartitionsMax));
  ReadVersions(m.versions(), status, [out](std::size_t, Version version) { out->versions.push_back(version); });
  out->values = payload->TakeValues(m.value_bytes(), status);
  out->on_disk = m.on_disk();
}

void ReadTable(const wire::PushPart& m, PayloadReader* payload, PushPart* out, Status* status) {
  out->table = TableId(m.table_id());
  out->pulled_clock = Clock(m.pulled_clock());
  out->codec = Enum<ValueCodec>(m.codec(), "codec", status);
  ReadKeys(m.keys(), &out->keys, status);
  if (m.pulled()) out->pulled = Enum<ValueCodec>(*m.pulled(), "pulled", status);
  out->action = Enum<PushAction>(m.action(), "action", status);
  std::vector<Section>& sections = out->keys.sections;
  if (m.versions() != nullptr && m.versions()->size() != sections.size()) {
    Refuse(ErrorCode::kMalformed,
           fmt::format("versions: {} items, expected {} for as many sections", m.versions()->size(), sections.size()),
           status);
    return;
  }
  ReadVersions(m.versions(), status, [&](std::size_t i, Version version) { sections[i].version = version; });
  out->keys.frame = payload->TakeKeys(m.key_bytes(), status);
  out->values = payload->TakeValues(m.value_bytes(), status);
}

// Reads the parts of a message until the first error.
template <typename WireTable, typename Part>
void ReadTables(const flatbuffers::Vector<Offset<WireTable>>* tables, PayloadReader* payload, TableParts<Part>* out,
                Status* status) {
  if (!CheckTables(tables == nullptr ? 0 : tables->size(), status)) return;
  out->resize(tables->size());
  std::size_t sections = 0;
  for (flatbuffers::uoffset_t i = 0; i < tables->size() && *status; ++i) {
    ReadTable(*tables->Get(i), payload, &(*out)[i], status);
    CheckSections(SectionsOf((*out)[i]), &sections, status);
  }
  if (!*status) [[unlikely]]
    status->error().message.insert(0, "tables[].");
}

}  // namespace

Offset<void> WriteData(FlatBufferBuilder* b, const Pull& m, Status* status) {
  const auto tables = WriteTables<wire::PullPart>(b, m.tables, status);
  return wire::CreatePull(*b, m.request.value, m.clock.value, tables).Union();
}

Offset<void> WriteData(FlatBufferBuilder* b, const PullReply& m, Status* status) {
  const auto tables = WriteTables<wire::ReplyPart>(b, m.tables, status);
  return wire::CreatePullReply(*b, m.request.value, m.min_clock.value, tables).Union();
}

Offset<void> WriteData(FlatBufferBuilder* b, const Push& m, Status* status) {
  const auto tables = WriteTables<wire::PushPart>(b, m.tables, status);
  return wire::CreatePush(*b, m.request.value, m.clock.value, tables).Union();
}

Offset<void> WriteData(FlatBufferBuilder* b, const PushAck& m, Status* status) {
  const auto sections =
      Structs<wire::SectionAck>(b, m.sections, "sections", limits::kPartitionsMax, status, [](const SectionAck& s) {
        return wire::SectionAck(s.partition.value, static_cast<wire::ErrorCode>(s.code), s.sequence.value,
                                s.expected.value);
      });
  return wire::CreatePushAck(*b, m.request.value, sections).Union();
}

Offset<void> WriteData(FlatBufferBuilder* b, const Prefetch& m, Status* status) {
  const auto keys = WriteKeys(b, m.keys, status);
  return wire::CreatePrefetch(*b, m.table.value, keys).Union();
}

void ReadData(const wire::Pull& m, PayloadReader* payload, Pull* out, Status* status) {
  out->request = RequestId(m.request());
  out->clock = Clock(m.clock());
  ReadTables(m.tables(), payload, &out->tables, status);
}

void ReadData(const wire::PullReply& m, PayloadReader* payload, PullReply* out, Status* status) {
  out->request = RequestId(m.request());
  out->min_clock = Clock(m.min_clock());
  ReadTables(m.tables(), payload, &out->tables, status);
}

void ReadData(const wire::Push& m, PayloadReader* payload, Push* out, Status* status) {
  out->request = RequestId(m.request());
  out->clock = Clock(m.clock());
  ReadTables(m.tables(), payload, &out->tables, status);
}

void ReadData(const wire::PushAck& m, PayloadReader*, PushAck* out, Status* status) {
  out->request = RequestId(m.request());
  ReadList(m.sections(), "sections", limits::kPartitionsMax, status, &out->sections,
           [status](const wire::SectionAck& s) {
             return SectionAck{PartitionId(s.partition()), Sequence(s.sequence()),
                               Enum<ErrorCode>(s.code(), "sections[].code", status), Sequence(s.expected())};
           });
}

void ReadData(const wire::Prefetch& m, PayloadReader* payload, Prefetch* out, Status* status) {
  out->table = TableId(m.table_id());
  ReadKeys(m.keys(), &out->keys, status);
  out->keys.frame = payload->TakeKeys(payload->keys_left(), status);
}

}  // namespace tarn::net
