#include "net/data_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

bool CheckItems(std::size_t size, std::string_view field, Status* status) {
  if (size <= limits::kPartitionsMax) [[likely]]
    return true;
  return Refuse(ErrorCode::kTooLarge,
                fmt::format("{}: {} items, expected at most {}", field, size, limits::kPartitionsMax), status);
}

// --- Writing; enumerators have the same numbers in both types ---

wire::ValueCodec Codec(ValueCodec codec) { return static_cast<wire::ValueCodec>(codec); }

// Writes a list of structs: convert(item) for each item.
template <typename To, typename From, typename Convert>
Offset<flatbuffers::Vector<const To*>> Structs(FlatBufferBuilder* b, const std::vector<From>& items,
                                               std::string_view field, Status* status, Convert convert) {
  if (!CheckItems(items.size(), field, status)) return {};
  To* out = nullptr;
  const auto offset = b->CreateUninitializedVectorOfStructs(items.size(), &out);
  for (const From& item : items) *out++ = convert(item);
  return offset;
}

Offset<wire::KeyList> WriteKeys(FlatBufferBuilder* b, const KeyList& m, Status* status) {
  const auto sections = Structs<wire::Section>(b, m.sections, "keys.sections", status, [](const Section& s) {
    return wire::Section(s.partition.value, s.count, s.sequence.value);
  });
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

Offset<wire::Push> WritePush(FlatBufferBuilder* b, const Push& m, Status* status) {
  const auto keys = WriteKeys(b, m.keys, status);
  const auto versions = WriteVersions(b, m.keys.sections);
  const auto pulled = m.pulled ? flatbuffers::Optional<wire::ValueCodec>(Codec(*m.pulled)) : flatbuffers::nullopt;
  return wire::CreatePush(*b, m.request.value, m.table.value, m.clock.value, m.pulled_clock.value, Codec(m.codec), keys,
                          versions, pulled, static_cast<wire::PushAction>(m.action));
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
void ReadList(const flatbuffers::Vector<const From*>* items, std::string_view field, Status* status,
              std::vector<To>* out, Convert convert) {
  if (items == nullptr || !CheckItems(items->size(), field, status)) return;
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
  ReadList(m->sections(), "keys.sections", status, &out->sections, [](const wire::Section& s) {
    return Section{PartitionId(s.partition()), s.count(), Sequence(s.sequence())};
  });
}

}  // namespace

Offset<void> WriteData(FlatBufferBuilder* b, const Pull& m, Status* status) {
  const auto keys = WriteKeys(b, m.keys, status);
  return wire::CreatePull(*b, m.request.value, m.table.value, m.clock.value, Codec(m.codec), keys).Union();
}

Offset<void> WriteData(FlatBufferBuilder* b, const PullReply& m, Status* status) {
  if (!CheckItems(m.versions.size(), "versions", status)) return {};
  const auto versions = WriteVersions(b, m.versions);
  return wire::CreatePullReply(*b, m.request.value, m.table.value, m.min_clock.value, Codec(m.codec), m.count, versions)
      .Union();
}

Offset<void> WriteData(FlatBufferBuilder* b, const Push& m, Status* status) { return WritePush(b, m, status).Union(); }

Offset<void> WriteData(FlatBufferBuilder* b, const PushAck& m, Status* status) {
  const auto sections = Structs<wire::SectionAck>(b, m.sections, "sections", status, [](const SectionAck& s) {
    return wire::SectionAck(s.partition.value, static_cast<wire::ErrorCode>(s.code), s.sequence.value,
                            s.expected.value);
  });
  return wire::CreatePushAck(*b, m.request.value, sections).Union();
}

Offset<void> WriteData(FlatBufferBuilder* b, const PushPull& m, Status* status) {
  const auto push = WritePush(b, m.push, status);
  if (!*status) [[unlikely]]
    status->error().message.insert(0, "push.");
  return wire::CreatePushPull(*b, push, m.pull_request.value, m.pull_clock.value, Codec(m.pull_codec)).Union();
}

Offset<void> WriteData(FlatBufferBuilder* b, const Prefetch& m, Status* status) {
  const auto keys = WriteKeys(b, m.keys, status);
  return wire::CreatePrefetch(*b, m.table.value, keys).Union();
}

void ReadData(const wire::Pull& m, Pull* out, Status* status) {
  out->request = RequestId(m.request());
  out->table = TableId(m.table_id());
  out->clock = Clock(m.clock());
  out->codec = Enum<ValueCodec>(m.codec(), "codec", status);
  ReadKeys(m.keys(), &out->keys, status);
}

void ReadData(const wire::PullReply& m, PullReply* out, Status* status) {
  out->request = RequestId(m.request());
  out->table = TableId(m.table_id());
  out->min_clock = Clock(m.min_clock());
  out->codec = Enum<ValueCodec>(m.codec(), "codec", status);
  out->count = m.count();
  if (m.versions() != nullptr) out->versions.reserve(std::min(m.versions()->size(), limits::kPartitionsMax));
  ReadVersions(m.versions(), status, [out](std::size_t, Version version) { out->versions.push_back(version); });
}

void ReadData(const wire::Push& m, Push* out, Status* status) {
  out->request = RequestId(m.request());
  out->table = TableId(m.table_id());
  out->clock = Clock(m.clock());
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
}

void ReadData(const wire::PushAck& m, PushAck* out, Status* status) {
  out->request = RequestId(m.request());
  ReadList(m.sections(), "sections", status, &out->sections, [status](const wire::SectionAck& s) {
    return SectionAck{PartitionId(s.partition()), Sequence(s.sequence()),
                      Enum<ErrorCode>(s.code(), "sections[].code", status), Sequence(s.expected())};
  });
}

void ReadData(const wire::PushPull& m, PushPull* out, Status* status) {
  if (m.push() == nullptr) [[unlikely]] {
    Missing("push", status);
    return;
  }
  ReadData(*m.push(), &out->push, status);
  if (!*status) [[unlikely]]
    status->error().message.insert(0, "push.");
  out->pull_request = RequestId(m.pull_request());
  out->pull_clock = Clock(m.pull_clock());
  out->pull_codec = Enum<ValueCodec>(m.pull_codec(), "pull_codec", status);
}

void ReadData(const wire::Prefetch& m, Prefetch* out, Status* status) {
  out->table = TableId(m.table_id());
  ReadKeys(m.keys(), &out->keys, status);
}

}  // namespace tarn::net
