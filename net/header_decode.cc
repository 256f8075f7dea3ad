#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/codec/table_codec.h"
#include "core/limits.h"
#include "net/header.h"
#include "wire_generated.h"

namespace tarn::net {
namespace {

static_assert(SameEnd(wire::Role::MAX, Role::kWorker));
static_assert(SameEnd(wire::KeyCodec::MAX, KeyCodec::kHeld));
static_assert(SameEnd(wire::ErrorCode::MAX, ErrorCode::kDiverged));
static_assert(SameEnd(wire::WorkerState::MAX, WorkerState::kEnded));
static_assert(SameEnd(wire::LeasePurpose::MAX, LeasePurpose::kTest));
static_assert(static_cast<std::size_t>(wire::Body::MAX) == std::variant_size_v<Body>);

template <typename Item>
constexpr std::size_t kItemAlignment = alignof(Item);
template <typename Item>
constexpr std::size_t kItemAlignment<const Item*> = alignof(Item);

// Reads one verified header and keeps the first error. After an error it goes on safely with empty values.
class Reader {
 public:
  explicit Reader(std::size_t header_bytes) : header_bytes_(header_bytes) {}

  Expected<Message> Finish(const wire::Header& header) {
    Message message;
    message.job = header.job();
    message.sender.role = Enum<Role>(header.role(), "sender.role");
    message.sender.rank = header.rank();
    message.sender.incarnation = Incarnation(header.incarnation());
    message.epoch = Epoch(header.epoch());
    ReadBody(header, &message.body);
    if (!status_)
      return Fail(status_.error().code,
                  fmt::format("{}.{}", wire::EnumNameBody(header.body_type()), status_.error().message));
    return message;
  }

 private:
  void Refuse(ErrorCode code, std::string text) {
    if (status_) status_ = Fail(code, std::move(text));
  }

  // The value if it is an enumerator, else the first one and an error.
  template <typename To, typename From>
  To Enum(From value, std::string_view field) {
    if (value <= From::MAX) return static_cast<To>(value);
    Refuse(ErrorCode::kMalformed, fmt::format("{}: value {}, expected 0 to {}", field, static_cast<unsigned>(value),
                                              static_cast<unsigned>(From::MAX)));
    return To{};
  }

  // Whether a table or struct is there.
  bool Has(const void* part, std::string_view field) {
    if (part == nullptr) Refuse(ErrorCode::kMalformed, fmt::format("{}: missing", field));
    return part != nullptr;
  }

  bool Fits(std::size_t size, std::size_t limit, std::string_view field, std::string_view unit) {
    if (size > limit)
      Refuse(ErrorCode::kTooLarge, fmt::format("{}: {} {}, expected at most {}", field, size, unit, limit));
    return size <= limit;
  }

  std::string String(const flatbuffers::String* text, std::size_t limit, std::string_view field) {
    if (text == nullptr || !Fits(text->size(), limit, field, "bytes")) return {};
    return text->str();
  }

  // One `convert(item)` for each item of a vector; no vector is an empty one.
  template <typename To, typename From, typename Convert>
  std::vector<To> List(const flatbuffers::Vector<From>* items, std::size_t limit, std::string_view field,
                       Convert convert) {
    std::vector<To> out;
    if (items == nullptr || !Fits(items->size(), limit, field, "items")) return out;
    // The verifier aligns a vector's length only, not its items (FlatBuffers 2.0.8, VerifyVectorOrString).
    if (items->size() > 0 && reinterpret_cast<std::uintptr_t>(items->Data()) % kItemAlignment<From> != 0) {
      Refuse(ErrorCode::kMalformed, fmt::format("{}: items not aligned to {} bytes", field, kItemAlignment<From>));
      return out;
    }
    out.reserve(items->size());
    for (flatbuffers::uoffset_t i = 0; i < items->size(); ++i) out.push_back(convert(*items, i));
    return out;
  }

  static DataPosition Position(const wire::DataPosition& p) { return {LeaseId(p.lease()), p.rows()}; }
  DataPosition Position(const wire::DataPosition* p, std::string_view field) {
    return Has(p, field) ? Position(*p) : DataPosition{};
  }
  ValueCodec Codec(wire::ValueCodec codec, std::string_view field) { return Enum<ValueCodec>(codec, field); }
  ErrorCode Code(wire::ErrorCode code, std::string_view field) { return Enum<ErrorCode>(code, field); }

  KeyList Keys(const wire::KeyList* m) {
    if (!Has(m, "keys")) return {};
    KeyList out;
    out.codec = Enum<KeyCodec>(m->codec(), "keys.codec");
    out.first_key = m->first_key();
    out.count = m->count();
    out.sections = List<Section>(m->sections(), std::size_t{1} << limits::kPartitionBitsMax, "keys.sections",
                                 [](const auto& items, auto i) {
                                   const wire::Section& s = *items.Get(i);
                                   return Section{PartitionId(s.partition()), s.count(), Sequence(s.sequence())};
                                 });
    out.list = m->list();
    return out;
  }

  TableSpec Spec(const wire::TableSpec* m) {
    auto spec = DecodeTable(m);
    if (spec) return *std::move(spec);
    Refuse(spec.error().code, spec.error().message);
    return {};
  }

  RouteMap Routes(const wire::RouteMap* m) {
    if (!Has(m, "view.routes")) return {};
    RouteMap out;
    out.epoch = Epoch(m->epoch());
    out.partition_bits = m->partition_bits();
    out.owners = List<ShardId>(m->owners(), std::size_t{1} << limits::kPartitionBitsMax, "view.routes.owners",
                               [](const auto& items, auto i) { return ShardId(items.Get(i)); });
    out.endpoints = List<std::string>(
        m->endpoints(), limits::kShardsMax, "view.routes.endpoints", [this](const auto& items, auto i) {
          return String(items.Get(i), limits::kEndpointBytesMax, "view.routes.endpoints[]");
        });
    return out;
  }

  WorkerEntry Worker(const wire::WorkerEntry& w) {
    return {WorkerRank(w.rank()), Incarnation(w.incarnation()), Enum<WorkerState>(w.state(), "view.workers[].state"),
            Clock(w.join()), Clock(w.end())};
  }

  CheckpointOrder Order(const wire::CheckpointOrder* m) {
    if (!Has(m, "view.checkpoint")) return {};
    return {
        CheckpointId(m->id()),   m->at_clock(),
        Clock(m->clock()),       String(m->directory(), limits::kPathBytesMax, "view.checkpoint.directory"),
        CheckpointId(m->base()), String(m->base_directory(), limits::kPathBytesMax, "view.checkpoint.base_directory"),
        m->whole_hash(),         m->blobs()};
  }

  View ReadView(const wire::View* m) {
    if (!Has(m, "view") || !Has(m->proposal(), "view.proposal")) return {};
    View out;
    out.version = ViewVersion(m->version());
    out.routes = Routes(m->routes());
    out.workers = List<WorkerEntry>(m->workers(), limits::kWorkerEntriesMax, "view.workers",
                                    [this](const auto& items, auto i) { return Worker(*items.Get(i)); });
    out.tables = List<TableSpec>(m->tables(), limits::kTablesMax, "view.tables",
                                 [this](const auto& items, auto i) { return Spec(items.Get(i)); });
    out.proposal = {m->proposal()->id(), m->proposal()->open(), m->proposal()->drain()};
    out.checkpoint = Order(m->checkpoint());
    out.whole = CheckpointId(m->whole());
    return out;
  }

  Quality ReadQuality(const wire::Quality* m) {
    Quality out;
    if (!Has(m, "done[].quality")) return out;
    out.rows = m->rows();
    out.positives = m->positives();
    out.correct = m->correct();
    out.loss_sum = m->loss_sum();
    const std::size_t buckets = m->bucket() == nullptr ? 0 : m->bucket()->size();
    const std::size_t negatives = m->bucket_negatives() == nullptr ? 0 : m->bucket_negatives()->size();
    const std::size_t positives = m->bucket_positives() == nullptr ? 0 : m->bucket_positives()->size();
    if (!Fits(buckets, Quality::kBuckets, "done[].quality.bucket", "items")) return out;
    if (negatives != buckets || positives != buckets) {
      Refuse(ErrorCode::kMalformed, fmt::format("done[].quality: {} buckets, {} negatives and {} positives, expected "
                                                "equally many",
                                                buckets, negatives, positives));
      return out;
    }
    // Leases could all point at the same buckets: what is made of a header stays in proportion to its bytes.
    bucket_bytes_ += buckets * (sizeof(std::uint16_t) + 2 * sizeof(std::uint32_t));
    if (!Fits(bucket_bytes_, header_bytes_, "done[].quality: buckets of all leases", "bytes")) return out;
    for (flatbuffers::uoffset_t i = 0; i < buckets; ++i) {
      const std::uint32_t bucket = m->bucket()->Get(i);
      if (i > 0 && bucket <= m->bucket()->Get(i - 1)) {
        Refuse(ErrorCode::kMalformed, fmt::format("done[].quality.bucket: {} after {}, expected ascending order",
                                                  bucket, m->bucket()->Get(i - 1)));
        return out;
      }
      out.buckets.emplace_back(bucket, Quality::Bucket{m->bucket_negatives()->Get(i), m->bucket_positives()->Get(i)});
    }
    return out;
  }

  LeaseGrant Grant(const wire::LeaseGrant& g) {
    return {LeaseId(g.lease()), Enum<LeasePurpose>(g.purpose(), "grants[].purpose"), g.epoch(), g.first_row(), g.rows(),
            g.skip_rows()};
  }

  Push ReadPush(const wire::Push& m) {
    return {RequestId(m.request()),  TableId(m.table_id()),     Clock(m.clock()),
            Clock(m.pulled_clock()), Codec(m.codec(), "codec"), Keys(m.keys())};
  }

  // One overload for each body, chosen by the type in the header.
  Pull Read(const wire::Pull& m) {
    return {RequestId(m.request()), TableId(m.table_id()), Clock(m.clock()), Codec(m.codec(), "codec"), Keys(m.keys())};
  }
  PullReply Read(const wire::PullReply& m) {
    return {RequestId(m.request()), TableId(m.table_id()), Clock(m.min_clock()), Codec(m.codec(), "codec"), m.count()};
  }
  Push Read(const wire::Push& m) { return ReadPush(m); }
  PushAck Read(const wire::PushAck& m) {
    return {RequestId(m.request()), List<SectionAck>(m.sections(), std::size_t{1} << limits::kPartitionBitsMax,
                                                     "sections", [this](const auto& items, auto i) {
                                                       const wire::SectionAck& s = *items.Get(i);
                                                       return SectionAck{
                                                           PartitionId(s.partition()), Sequence(s.sequence()),
                                                           Code(s.code(), "sections[].code"), Sequence(s.expected())};
                                                     })};
  }
  PushPull Read(const wire::PushPull& m) {
    return {Has(m.push(), "push") ? ReadPush(*m.push()) : Push{}, RequestId(m.pull_request()), Clock(m.pull_clock()),
            Codec(m.pull_codec(), "pull_codec")};
  }
  Tick Read(const wire::Tick& m) {
    return {Clock(m.clock()), Position(m.position(), "position"),
            List<TickPoint>(m.earlier(), limits::kTicksKeptMax, "earlier", [](const auto& items, auto i) {
              return TickPoint{Clock(items.Get(i)->clock()), Position(items.Get(i)->position())};
            })};
  }
  static LogOrder ReadLogOrder(const wire::LogOrder* m) {
    if (m == nullptr) return {};
    return {m->run(), m->recover(), CheckpointId(m->from()), LogSequence(m->at_least())};
  }
  TickAck Read(const wire::TickAck& m) { return {Clock(m.clock())}; }
  Prefetch Read(const wire::Prefetch& m) { return {TableId(m.table_id()), Keys(m.keys())}; }
  ErrorReply Read(const wire::ErrorReply& m) {
    return {RequestId(m.request()), Code(m.code(), "code"), String(m.message(), limits::kTextBytesMax, "message"),
            Epoch(m.epoch())};
  }
  Join Read(const wire::Join& m) {
    return {Enum<Role>(m.role(), "role"),
            m.rank(),
            m.nonce(),
            m.protocol_version(),
            String(m.endpoint(), limits::kEndpointBytesMax, "endpoint"),
            m.shards_per_server()};
  }
  Welcome Read(const wire::Welcome& m) {
    return {m.nonce(),
            m.rank(),
            Incarnation(m.incarnation()),
            Clock(m.start_clock()),
            String(m.job_text(), limits::kJobBytesMax, "job_text"),
            String(m.resume_directory(), limits::kPathBytesMax, "resume_directory"),
            ReadView(m.view()),
            ReadLogOrder(m.log()),
            m.blob_bytes()};
  }
  Heartbeat Read(const wire::Heartbeat& m) {
    Heartbeat out;
    out.view = ViewVersion(m.view());
    out.proposal = m.proposal();
    out.clock = Clock(m.clock());
    out.acked_clock = Clock(m.acked_clock());
    out.position = Position(m.position(), "position");
    out.fenced = List<FencedTick>(m.fenced(), limits::kWorkerEntriesMax, "fenced", [](const auto& items, auto i) {
      const wire::FencedTick& f = *items.Get(i);
      return FencedTick{Incarnation(f.incarnation()), Clock(f.tick()), Position(f.position()), Clock(f.pushed())};
    });
    out.counters = List<Counter>(m.counters(), limits::kCountersMax, "counters", [this](const auto& items, auto i) {
      const wire::Counter& counter = *items.Get(i);
      return Counter{String(counter.name(), limits::kNameBytesMax, "counters[].name"), counter.value()};
    });
    out.staleness = List<std::uint64_t>(m.staleness(), limits::kStalenessBucketsMax, "staleness",
                                        [](const auto& items, auto i) { return items.Get(i); });
    out.writing = CheckpointId(m.writing());
    out.fenced_ticks =
        List<WorkerTick>(m.fenced_ticks(), limits::kFencedTicksMax, "fenced_ticks", [](const auto& items, auto i) {
          const wire::WorkerTick& t = *items.Get(i);
          return WorkerTick{Incarnation(t.incarnation()), Clock(t.clock()), Position(t.position())};
        });
    out.log_synced = LogSequence(m.log_synced());
    out.log_bytes = m.log_bytes();
    out.drained = m.drained();
    return out;
  }
  HeartbeatAck Read(const wire::HeartbeatAck& m) { return {ViewVersion(m.view())}; }
  ViewUpdate Read(const wire::ViewUpdate& m) { return {ReadView(m.view())}; }
  CreateTable Read(const wire::CreateTable& m) {
    return {Spec(m.spec()), Code(m.code(), "code"), String(m.message(), limits::kTextBytesMax, "message")};
  }
  Barrier Read(const wire::Barrier& m) { return {m.number()}; }
  LeaseRequest Read(const wire::LeaseRequest& m) {
    LeaseRequest out;
    out.number = m.number();
    out.want = m.want();
    out.done = List<LeaseDone>(m.done(), limits::kLeasesPerWorkerMax, "done", [this](const auto& items, auto i) {
      return LeaseDone{LeaseId(items.Get(i)->lease()), ReadQuality(items.Get(i)->quality())};
    });
    if (!Has(m.rows(), "rows")) return out;
    out.rows[0] = m.rows()->train();
    out.rows[1] = m.rows()->validation();
    out.rows[2] = m.rows()->test();
    return out;
  }
  LeaseReply Read(const wire::LeaseReply& m) {
    return {m.number(),
            List<LeaseGrant>(m.grants(), limits::kLeasesPerWorkerMax, "grants",
                             [this](const auto& items, auto i) { return Grant(*items.Get(i)); }),
            Clock(m.jump_to()), m.finished()};
  }
  CheckpointFile File(const wire::CheckpointFile& m, std::string_view field) {
    return {String(m.name(), limits::kNameBytesMax, field),
            m.bytes(),
            m.crc32c(),
            m.rows(),
            m.removed(),
            m.seen(),
            PartitionId(m.first_partition()),
            PartitionId(m.last_partition())};
  }
  CheckpointPart Read(const wire::CheckpointPart& m) {
    CheckpointPart out;
    out.id = CheckpointId(m.id());
    out.code = Code(m.code(), "code");
    out.message = String(m.message(), limits::kTextBytesMax, "message");
    out.files = List<CheckpointFile>(m.files(), limits::kCheckpointFilesMax, "files",
                                     [this](const auto& items, auto i) { return File(*items.Get(i), "files[].name"); });
    out.max_clock = Clock(m.max_clock());
    out.state_hash = m.state_hash();
    out.position = Position(m.position(), "position");
    out.clock = Clock(m.clock());
    out.tables = List<CheckpointTable>(m.tables(), limits::kTablesMax, "tables", [](const auto& items, auto i) {
      const wire::CheckpointTable& t = *items.Get(i);
      return CheckpointTable{TableId(t.table()), t.rows(), t.removed(), t.seen(), t.state_rows()};
    });
    if (const auto hash = m.whole_hash()) out.whole_hash = *hash;
    return out;
  }
  CheckpointRequest Read(const wire::CheckpointRequest& m) {
    return {m.number(), Code(m.code(), "code"), String(m.message(), limits::kTextBytesMax, "message"),
            String(m.directory(), limits::kPathBytesMax, "directory")};
  }
  PutBlob Read(const wire::PutBlob& m) { return {CheckpointId(m.checkpoint()), m.offset(), m.total()}; }
  PutBlobAck Read(const wire::PutBlobAck& m) {
    return {CheckpointId(m.checkpoint()), m.received(),
            Has(m.file(), "file") ? File(*m.file(), "file.name") : CheckpointFile()};
  }
  GetBlob Read(const wire::GetBlob& m) { return {m.offset()}; }
  BlobPiece Read(const wire::BlobPiece& m) { return {m.offset(), m.total()}; }
  Leave Read(const wire::Leave& m) { return {Clock(m.clock()), Position(m.position(), "position")}; }
  Shutdown Read(const wire::Shutdown& m) {
    return {Code(m.code(), "code"), String(m.reason(), limits::kTextBytesMax, "reason")};
  }

  // The union's numbers are 1 + the variant's indices, which the order of the cases below cannot break: each takes
  // its type from the schema and puts the result of its own Read into the variant.
  void ReadBody(const wire::Header& header, Body* body) {
    switch (header.body_type()) {
      case wire::Body::Pull: return Put(header.body_as_Pull(), body);
      case wire::Body::PullReply: return Put(header.body_as_PullReply(), body);
      case wire::Body::Push: return Put(header.body_as_Push(), body);
      case wire::Body::PushAck: return Put(header.body_as_PushAck(), body);
      case wire::Body::PushPull: return Put(header.body_as_PushPull(), body);
      case wire::Body::Tick: return Put(header.body_as_Tick(), body);
      case wire::Body::TickAck: return Put(header.body_as_TickAck(), body);
      case wire::Body::Prefetch: return Put(header.body_as_Prefetch(), body);
      case wire::Body::ErrorReply: return Put(header.body_as_ErrorReply(), body);
      case wire::Body::Join: return Put(header.body_as_Join(), body);
      case wire::Body::Welcome: return Put(header.body_as_Welcome(), body);
      case wire::Body::Heartbeat: return Put(header.body_as_Heartbeat(), body);
      case wire::Body::HeartbeatAck: return Put(header.body_as_HeartbeatAck(), body);
      case wire::Body::ViewUpdate: return Put(header.body_as_ViewUpdate(), body);
      case wire::Body::CreateTable: return Put(header.body_as_CreateTable(), body);
      case wire::Body::Barrier: return Put(header.body_as_Barrier(), body);
      case wire::Body::LeaseRequest: return Put(header.body_as_LeaseRequest(), body);
      case wire::Body::LeaseReply: return Put(header.body_as_LeaseReply(), body);
      case wire::Body::CheckpointPart: return Put(header.body_as_CheckpointPart(), body);
      case wire::Body::Leave: return Put(header.body_as_Leave(), body);
      case wire::Body::Shutdown: return Put(header.body_as_Shutdown(), body);
      case wire::Body::CheckpointRequest: return Put(header.body_as_CheckpointRequest(), body);
      case wire::Body::PutBlob: return Put(header.body_as_PutBlob(), body);
      case wire::Body::PutBlobAck: return Put(header.body_as_PutBlobAck(), body);
      case wire::Body::GetBlob: return Put(header.body_as_GetBlob(), body);
      case wire::Body::BlobPiece: return Put(header.body_as_BlobPiece(), body);
      case wire::Body::NONE: break;
    }
    Refuse(ErrorCode::kMalformed,
           fmt::format("body: type {}, expected 1 to {}", static_cast<unsigned>(header.body_type()),
                       static_cast<unsigned>(wire::Body::MAX)));
  }

  template <typename Wire>
  void Put(const Wire* from, Body* body) {
    if (Has(from, "body")) *body = Read(*from);
  }

  std::size_t header_bytes_;
  std::size_t bucket_bytes_ = 0;
  Status status_;
};

}  // namespace

Expected<Message> ReadHeader(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), limits::kHeaderDepthMax, limits::kHeaderTablesMax);
  if (!wire::VerifyHeaderBuffer(verifier))
    return Fail(ErrorCode::kMalformed,
                fmt::format("header: {} bytes that are no FlatBuffer of wire.fbs", bytes.size()));
  return Reader(bytes.size()).Finish(*wire::GetHeader(data));
}

}  // namespace tarn::net
