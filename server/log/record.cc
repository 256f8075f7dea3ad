#include "server/log/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/codec/table_codec.h"
#include "core/limits.h"
#include "log_generated.h"

namespace tarn::server {
namespace {

namespace fb = tarn::log;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::Pack;
using flatbuffers::UnPack;

auto Points(FlatBufferBuilder& b, const std::vector<TickPoint>& points) {
  return b.CreateVectorOfNativeStructs<wire::TickPoint>(points);
}

std::vector<TickPoint> Points(const flatbuffers::Vector<const wire::TickPoint*>* points) {
  std::vector<TickPoint> out;
  if (points != nullptr)
    for (const wire::TickPoint* point : *points) out.push_back(UnPack(*point));
  return out;
}

Offset<fb::Push> WritePush(FlatBufferBuilder& b, const LoggedPush& p) {
  std::vector<wire::Section> sections;
  sections.reserve(p.push.keys.sections.size());
  for (const Section& s : p.push.keys.sections) sections.emplace_back(s.partition.value, s.count, s.sequence.value);
  const auto at = b.CreateVectorOfStructs(sections);
  Offset<flatbuffers::Vector<std::uint64_t>> versions;
  if (std::ranges::any_of(p.push.keys.sections, [](const Section& s) { return s.version != kNoVersion; })) {
    std::vector<std::uint64_t> words;
    words.reserve(p.push.keys.sections.size());
    for (const Section& s : p.push.keys.sections) words.push_back(s.version.value);
    versions = b.CreateVector(words);
  }
  const auto keys = wire::CreateKeyList(b, static_cast<wire::KeyCodec>(p.push.keys.codec), p.push.keys.first_key,
                                        p.push.keys.count, at);
  return fb::CreatePush(
      b, p.incarnation.value, p.rank.value, p.push.table.value, p.clock.value,
      static_cast<wire::ValueCodec>(p.push.codec), keys, p.push.pulled_clock.value, versions,
      p.push.pulled ? flatbuffers::Optional(static_cast<wire::ValueCodec>(*p.push.pulled)) : flatbuffers::nullopt,
      static_cast<wire::PushAction>(p.push.action));
}

Offset<fb::View> WriteView(FlatBufferBuilder& b, const LoggedView& view) {
  std::vector<Offset<wire::TableSpec>> tables;
  tables.reserve(view.tables.size());
  for (const TableSpec& spec : view.tables) tables.push_back(wire::CreateTableSpec(b, &spec));
  const auto workers_at = b.CreateVectorOfNativeStructs<wire::WorkerEntry>(view.workers);
  const auto tables_at = b.CreateVector(tables);
  return fb::CreateView(b, view.version.value, workers_at, tables_at, view.newest_order.value, view.cut_clock.value);
}

std::vector<std::uint64_t> RunsOf(const std::vector<Sequence>& watermarks) {
  std::vector<std::uint64_t> runs;
  for (std::size_t i = 0, end; i < watermarks.size(); i = end) {
    for (end = i + 1; end < watermarks.size() && watermarks[end] == watermarks[i];) ++end;
    runs.insert(runs.end(), {end - i, watermarks[i].value});
  }
  return runs;
}

Offset<fb::Head> WriteHead(FlatBufferBuilder& b, const LoggedHead& head) {
  std::vector<Offset<fb::Member>> members;
  for (const LoggedMember& m : head.members) {
    const auto earlier = Points(b, m.earlier);
    const auto position = Pack(m.position);
    members.push_back(fb::CreateMember(b, m.incarnation.value, m.tick.value, &position, m.pushed.value, earlier));
  }
  std::vector<Offset<fb::Watermarks>> watermarks;
  for (const auto& [incarnation, by_partition] : head.watermarks) {
    const auto runs = b.CreateVector(RunsOf(by_partition));
    watermarks.push_back(fb::CreateWatermarks(b, incarnation.value, runs));
  }
  const auto view = WriteView(b, head.view);
  const auto members_at = b.CreateVector(members);
  const auto watermarks_at = b.CreateVector(watermarks);
  return fb::CreateHead(b, head.partition_bits, view, head.minimum.value, members_at, watermarks_at, head.gathered,
                        head.hash, head.rows_clock ? head.rows_clock->value + 1 : 0,
                        head.rows_seconds ? *head.rows_seconds + 1 : 0);
}

template <typename Write>
LogRecord Encode(fb::Body type, Write write) {
  FlatBufferBuilder b(1024);
  const auto body = write(b);
  fb::FinishRecordBuffer(b, fb::CreateRecord(b, type, body.Union()));
  return {Buffer::Copy(b.GetBufferPointer(), b.GetSize()), {}, {}};
}

// Reads verified bytes. invalid_field_ is the name of an invalid field, or empty.
class Reader {
 public:
  template <typename To, typename From>
  To Enum(From value, const char* field) {
    if (value > From::MAX) invalid_field_ = field;
    return static_cast<To>(value);
  }

  LoggedPush Push(const fb::Push& m, const LogRecord& record) {
    LoggedPush out{Incarnation(m.incarnation()), WorkerRank(m.rank()), Clock(m.clock()), {}};
    out.push.table = TableId(m.table_id());
    out.push.values = record.values;
    out.push.pulled_clock = Clock(m.pulled_clock());
    if (m.pulled()) out.push.pulled = Enum<ValueCodec>(*m.pulled(), "push.pulled");
    out.push.codec = Enum<ValueCodec>(m.codec(), "push.codec");
    out.push.action = Enum<PushAction>(m.action(), "push.action");
    KeyList& keys = out.push.keys;
    keys.frame = record.keys;
    keys.codec = Enum<KeyCodec>(m.keys()->codec(), "push.keys.codec");
    keys.first_key = m.keys()->first_key();
    keys.count = m.keys()->count();
    if (m.keys()->sections() != nullptr)
      for (const wire::Section* s : *m.keys()->sections())
        keys.sections.push_back({PartitionId(s->partition()), s->count(), Sequence(s->sequence())});
    if (m.versions() != nullptr && m.versions()->size() != keys.sections.size()) invalid_field_ = "push.versions";
    if (m.versions() != nullptr && invalid_field_.empty())
      for (std::size_t i = 0; i < keys.sections.size(); ++i)
        keys.sections[i].version = Version(m.versions()->Get(static_cast<flatbuffers::uoffset_t>(i)));
    return out;
  }

  LoggedView View(const fb::View& m) {
    LoggedView out{.version = ViewVersion(m.version()),
                   .newest_order = CheckpointId(m.newest_order()),
                   .cut_clock = Clock(m.cut_clock())};
    if (m.workers() != nullptr)
      for (const wire::WorkerEntry* w : *m.workers()) {
        Enum<WorkerState>(w->state(), "view.workers.state");
        out.workers.push_back(UnPack(*w));
      }
    if (m.tables() != nullptr)
      for (const wire::TableSpec* spec : *m.tables()) {
        auto table = DecodeTable(spec);
        Status status = table ? Validate(*table) : Status(std::unexpected(table.error()));
        if (!status) invalid_field_ = fmt::format("view.tables ({})", status.error().message);
        if (status) out.tables.push_back(*std::move(table));
      }
    return out;
  }

  LoggedHead Head(const fb::Head& m) {
    LoggedHead out{.partition_bits = m.partition_bits(), .view = View(*m.view()), .minimum = Clock(m.minimum())};
    if (out.partition_bits > limits::kPartitionBitsMax) invalid_field_ = "head.partition_bits";
    if (m.members() != nullptr)
      for (const fb::Member* member : *m.members())
        out.members.push_back({Incarnation(member->incarnation()), Clock(member->tick()), UnPack(*member->position()),
                               Clock(member->pushed()), Points(member->earlier())});
    if (m.watermarks() != nullptr && invalid_field_.empty())
      for (const fb::Watermarks* watermarks : *m.watermarks())
        out.watermarks[Incarnation(watermarks->incarnation())] =
            WatermarksOf(watermarks->runs(), std::size_t{1} << out.partition_bits);
    out.gathered = m.gathered();
    out.hash = m.hash();
    if (m.rows_clock() != 0) out.rows_clock = Clock(m.rows_clock() - 1);
    if (m.rows_seconds() != 0) out.rows_seconds = m.rows_seconds() - 1;
    return out;
  }

  std::string invalid_field_;

 private:
  std::vector<Sequence> WatermarksOf(const flatbuffers::Vector<std::uint64_t>* runs, std::size_t partitions) {
    std::vector<Sequence> out;
    if (runs == nullptr || runs->size() % 2 != 0) {
      invalid_field_ = "head.watermarks.runs";
      return out;
    }
    for (flatbuffers::uoffset_t i = 0; i < runs->size(); i += 2) {
      if (runs->Get(i) > partitions - out.size()) {
        invalid_field_ = "head.watermarks.runs";
        return out;
      }
      out.resize(out.size() + runs->Get(i), Sequence(runs->Get(i + 1)));
    }
    if (out.size() != partitions) invalid_field_ = "head.watermarks.runs";
    return out;
  }
};

Expected<LoggedBody> Read(const fb::Record& m, const LogRecord& record) {
  if (m.body() == nullptr) return Fail(ErrorCode::kCorrupt, "field body is missing");
  Reader reader;
  LoggedBody body;
  switch (m.body_type()) {
    case fb::Body::Head: body = reader.Head(*m.body_as_Head()); break;
    case fb::Body::Push: body = reader.Push(*m.body_as_Push(), record); break;
    case fb::Body::Tick: {
      const fb::Tick& tick = *m.body_as_Tick();
      const TickPoint point = UnPack(*tick.tick());
      body = LoggedTick{Incarnation(tick.incarnation()), {point.clock, point.position, Points(tick.earlier())}};
      break;
    }
    case fb::Body::View: body = reader.View(*m.body_as_View()); break;
    case fb::Body::Gathered: body = LoggedGathered{reader.Push(*m.body_as_Gathered()->push(), record)}; break;
    case fb::Body::Time: body = LoggedTime{m.body_as_Time()->seconds()}; break;
    default: reader.invalid_field_ = "body"; break;
  }
  if (reader.invalid_field_.empty()) return body;
  return Fail(ErrorCode::kCorrupt, fmt::format("field {} is invalid", reader.invalid_field_));
}

}  // namespace

LogRecord EncodeRecord(const LoggedHead& head) {
  return Encode(fb::Body::Head, [&](FlatBufferBuilder& b) { return WriteHead(b, head); });
}

LogRecord EncodeRecord(const LoggedPush& push) {
  LogRecord record = Encode(fb::Body::Push, [&](FlatBufferBuilder& b) { return WritePush(b, push); });
  record.keys = push.push.keys.frame;
  record.values = push.push.values;
  return record;
}

LogRecord EncodeRecord(const LoggedGathered& gathered) {
  LogRecord record = Encode(fb::Body::Gathered,
                            [&](FlatBufferBuilder& b) { return fb::CreateGathered(b, WritePush(b, gathered.push)); });
  record.keys = gathered.push.push.keys.frame;
  record.values = gathered.push.push.values;
  return record;
}

LogRecord EncodeRecord(const LoggedTime& time) {
  return Encode(fb::Body::Time, [&](FlatBufferBuilder& b) { return fb::CreateTime(b, time.seconds); });
}

LogRecord EncodeRecord(const LoggedTick& tick) {
  LogRecord record = Encode(fb::Body::Tick, [&](FlatBufferBuilder& b) {
    const auto earlier = Points(b, tick.tick.earlier);
    const auto point = Pack(TickPoint{tick.tick.clock, tick.tick.position});
    return fb::CreateTick(b, tick.incarnation.value, &point, earlier);
  });
  record.is_urgent = false;
  return record;
}

LogRecord EncodeRecord(const LoggedView& view) {
  return Encode(fb::Body::View, [&](FlatBufferBuilder& b) { return WriteView(b, view); });
}

Expected<LoggedBody> DecodeRecord(const LogRecord& record) {
  // FlatBuffers that are read in place must be aligned. `head` is: Encode and the log reader make it with Buffer::Copy.
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(record.head.data());
  flatbuffers::Verifier verifier(bytes, record.head.size());
  if (record.head.size() < 8 || !fb::VerifyRecordBuffer(verifier))
    return Fail(ErrorCode::kCorrupt, "its FlatBuffer is invalid");
  return Read(*fb::GetRecord(bytes), record);
}

}  // namespace tarn::server
