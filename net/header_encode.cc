#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/codec/table_codec.h"
#include "core/limits.h"
#include "net/header.h"
#include "wire_generated.h"

namespace tarn::net {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
template <typename T>
using VectorOffset = Offset<flatbuffers::Vector<T>>;

// Enumerators are the same numbers on both sides; header_decode.cc asserts it.
template <typename To, typename From>
To Cast(From value) {
  return static_cast<To>(value);
}

wire::ValueCodec Codec(ValueCodec codec) { return Cast<wire::ValueCodec>(codec); }
wire::ErrorCode Code(ErrorCode code) { return Cast<wire::ErrorCode>(code); }

wire::DataPosition Position(const DataPosition& from) { return {from.lease.value, from.rows}; }

// Writes the parts of one header and keeps the first error.
class Writer {
 public:
  explicit Writer(FlatBufferBuilder* builder) : b_(*builder) {}

  Status Finish(const Message& message) {
    const auto body = std::visit([this](const auto& m) { return Write(m).Union(); }, message.body);
    if (!status_)
      return Fail(status_.error().code, fmt::format("{}.{}", BodyName(message.body), status_.error().message));
    const auto type = static_cast<wire::Body>(message.body.index() + 1);
    b_.Finish(wire::CreateHeader(b_, message.job, Cast<wire::Role>(message.sender.role), message.sender.rank,
                                 message.sender.incarnation.value, message.epoch.value, type, body));
    return {};
  }

 private:
  void Refuse(std::string_view field, std::size_t size, std::size_t limit, std::string_view unit) {
    if (status_)
      status_ = Fail(ErrorCode::kTooLarge, fmt::format("{}: {} {}, expected at most {}", field, size, unit, limit));
  }

  Offset<flatbuffers::String> String(const std::string& text, std::size_t limit, std::string_view field) {
    if (text.size() <= limit) return b_.CreateString(text);
    Refuse(field, text.size(), limit, "bytes");
    return b_.CreateString("");
  }

  // Cut, at the start of a UTF-8 character, rather than refused: an error must not be lost for its length.
  Offset<flatbuffers::String> Text(const std::string& text) {
    std::size_t size = std::min<std::size_t>(text.size(), limits::kTextBytesMax);
    const auto continues = [&](std::size_t i) { return i < text.size() && (text[i] & 0xc0) == 0x80; };
    for (int back = 0; back < 3 && size > 0 && continues(size); ++back) --size;
    return b_.CreateString(text.data(), size);
  }

  template <typename T>
  bool Fits(const std::vector<T>& items, std::size_t limit, std::string_view field) {
    if (items.size() <= limit) return true;
    Refuse(field, items.size(), limit, "items");
    return false;
  }

  // A vector of FlatBuffers structs or scalars, written in place, one `convert(item)` each.
  template <typename To, typename From, typename Convert>
  VectorOffset<const To*> Structs(const std::vector<From>& items, std::size_t limit, std::string_view field,
                                  Convert convert) {
    if (!Fits(items, limit, field)) return {};
    To* out = nullptr;
    const auto offset = b_.CreateUninitializedVectorOfStructs(items.size(), &out);
    for (const From& item : items) *out++ = convert(item);
    return offset;
  }

  template <typename To, typename From, typename Convert>
  VectorOffset<To> Scalars(const From& items, Convert convert) {
    To* out = nullptr;
    const auto offset = b_.CreateUninitializedVector(items.size(), sizeof(To), reinterpret_cast<uint8_t**>(&out));
    for (const auto& item : items) *out++ = convert(item);
    return offset;
  }

  template <typename To, typename From, typename Convert>
  VectorOffset<Offset<To>> Tables(const std::vector<From>& items, std::size_t limit, std::string_view field,
                                  Convert convert) {
    if (!Fits(items, limit, field)) return {};
    std::vector<Offset<To>> offsets;
    offsets.reserve(items.size());
    for (const From& item : items) offsets.push_back(convert(item));
    return b_.CreateVector(offsets);
  }

  Offset<wire::KeyList> Keys(const KeyList& m) {
    const auto sections = Structs<wire::Section>(
        m.sections, std::size_t{1} << limits::kPartitionBitsMax, "keys.sections",
        [](const Section& s) { return wire::Section(s.partition.value, s.count, s.sequence.value); });
    return wire::CreateKeyList(b_, Cast<wire::KeyCodec>(m.codec), m.first_key, m.count, sections, m.list);
  }

  Offset<wire::TableSpec> Spec(const TableSpec& m) {
    if (m.name.size() > limits::kNameBytesMax) Refuse("table.name", m.name.size(), limits::kNameBytesMax, "bytes");
    return EncodeTable(&b_, m);
  }

  Offset<wire::RouteMap> Routes(const RouteMap& m) {
    VectorOffset<std::uint32_t> owners;
    if (Fits(m.owners, std::size_t{1} << limits::kPartitionBitsMax, "view.routes.owners"))
      owners = Scalars<std::uint32_t>(m.owners, [](ShardId shard) { return shard.value; });
    const auto endpoints = Tables<flatbuffers::String>(
        m.endpoints, limits::kShardsMax, "view.routes.endpoints", [this](const std::string& endpoint) {
          return String(endpoint, limits::kEndpointBytesMax, "view.routes.endpoints[]");
        });
    return wire::CreateRouteMap(b_, m.epoch.value, m.partition_bits, owners, endpoints);
  }

  Offset<wire::View> WriteView(const View& m) {
    const auto routes = Routes(m.routes);
    const auto workers =
        Structs<wire::WorkerEntry>(m.workers, limits::kWorkerEntriesMax, "view.workers", [](const WorkerEntry& w) {
          return wire::WorkerEntry(w.rank.value, Cast<wire::WorkerState>(w.state), w.incarnation.value, w.join.value,
                                   w.end.value);
        });
    const auto tables = Tables<wire::TableSpec>(m.tables, limits::kTablesMax, "view.tables",
                                                [this](const TableSpec& spec) { return Spec(spec); });
    const wire::Proposal proposal(m.proposal.id, m.proposal.open, m.proposal.drain);
    const auto directory = String(m.checkpoint.directory, limits::kPathBytesMax, "view.checkpoint.directory");
    const auto base = String(m.checkpoint.base_directory, limits::kPathBytesMax, "view.checkpoint.base_directory");
    const auto checkpoint = wire::CreateCheckpointOrder(b_, m.checkpoint.id.value, m.checkpoint.at_clock,
                                                        m.checkpoint.clock.value, directory, m.checkpoint.base.value,
                                                        base, m.checkpoint.whole_hash, m.checkpoint.blobs);
    return wire::CreateView(b_, m.version.value, routes, workers, tables, &proposal, checkpoint, m.whole.value);
  }

  Offset<wire::Quality> WriteQuality(const Quality& m) {
    if (!m.buckets.empty() && m.buckets.rbegin()->first >= Quality::kBuckets)
      Refuse("done[].quality.bucket", m.buckets.rbegin()->first, Quality::kBuckets - 1, "is the last");
    const auto bucket =
        Scalars<std::uint16_t>(m.buckets, [](const auto& item) { return static_cast<std::uint16_t>(item.first); });
    const auto negatives = Scalars<std::uint32_t>(m.buckets, [](const auto& item) { return item.second.negatives; });
    const auto positives = Scalars<std::uint32_t>(m.buckets, [](const auto& item) { return item.second.positives; });
    return wire::CreateQuality(b_, m.rows, m.positives, m.correct, m.loss_sum, bucket, negatives, positives);
  }

  Offset<wire::LeaseDone> Done(const LeaseDone& m) {
    const auto quality = WriteQuality(m.quality);
    return wire::CreateLeaseDone(b_, m.lease.value, quality);
  }

  Offset<wire::Pull> Write(const Pull& m) {
    const auto keys = Keys(m.keys);
    return wire::CreatePull(b_, m.request.value, m.table.value, m.clock.value, Codec(m.codec), keys);
  }

  Offset<wire::PullReply> Write(const PullReply& m) {
    return wire::CreatePullReply(b_, m.request.value, m.table.value, m.min_clock.value, Codec(m.codec), m.count);
  }

  Offset<wire::Push> Write(const Push& m) {
    const auto keys = Keys(m.keys);
    return wire::CreatePush(b_, m.request.value, m.table.value, m.clock.value, m.pulled_clock.value, Codec(m.codec),
                            keys);
  }

  Offset<wire::PushAck> Write(const PushAck& m) {
    const auto sections = Structs<wire::SectionAck>(
        m.sections, std::size_t{1} << limits::kPartitionBitsMax, "sections", [](const SectionAck& s) {
          return wire::SectionAck(s.partition.value, Code(s.code), s.sequence.value, s.expected.value);
        });
    return wire::CreatePushAck(b_, m.request.value, sections);
  }

  Offset<wire::PushPull> Write(const PushPull& m) {
    const auto push = Write(m.push);
    return wire::CreatePushPull(b_, push, m.pull_request.value, m.pull_clock.value, Codec(m.pull_codec));
  }

  Offset<wire::Tick> Write(const Tick& m) {
    const auto position = Position(m.position);
    const auto earlier = Structs<wire::TickPoint>(m.earlier, limits::kTicksKeptMax, "earlier", [](const TickPoint& t) {
      return wire::TickPoint(t.clock.value, Position(t.position));
    });
    return wire::CreateTick(b_, m.clock.value, &position, earlier);
  }

  Offset<wire::TickAck> Write(const TickAck& m) { return wire::CreateTickAck(b_, m.clock.value); }

  Offset<wire::Prefetch> Write(const Prefetch& m) {
    const auto keys = Keys(m.keys);
    return wire::CreatePrefetch(b_, m.table.value, keys);
  }

  Offset<wire::ErrorReply> Write(const ErrorReply& m) {
    const auto text = Text(m.message);
    return wire::CreateErrorReply(b_, m.request.value, Code(m.code), text, m.epoch.value);
  }

  Offset<wire::Join> Write(const Join& m) {
    const auto endpoint = String(m.endpoint, limits::kEndpointBytesMax, "endpoint");
    return wire::CreateJoin(b_, Cast<wire::Role>(m.role), m.rank, m.nonce, m.protocol_version, endpoint,
                            m.shards_per_server);
  }

  Offset<wire::Welcome> Write(const Welcome& m) {
    const auto job = String(m.job_text, limits::kJobBytesMax, "job_text");
    const auto resume = String(m.resume_directory, limits::kPathBytesMax, "resume_directory");
    const auto view = WriteView(m.view);
    const auto log = wire::CreateLogOrder(b_, m.log.run, m.log.recover, m.log.from.value, m.log.at_least.value);
    return wire::CreateWelcome(b_, m.nonce, m.rank, m.incarnation.value, m.start_clock.value, job, resume, view, log,
                               m.blob_bytes);
  }

  Offset<wire::Heartbeat> Write(const Heartbeat& m) {
    const auto position = Position(m.position);
    const auto fenced =
        Structs<wire::FencedTick>(m.fenced, limits::kWorkerEntriesMax, "fenced", [](const FencedTick& f) {
          return wire::FencedTick(f.incarnation.value, f.tick.value, Position(f.position), f.pushed.value);
        });
    const auto counters =
        Tables<wire::Counter>(m.counters, limits::kCountersMax, "counters", [this](const Counter& counter) {
          const auto name = String(counter.name, limits::kNameBytesMax, "counters[].name");
          return wire::CreateCounter(b_, name, counter.value);
        });
    VectorOffset<std::uint64_t> staleness;
    if (Fits(m.staleness, limits::kStalenessBucketsMax, "staleness")) staleness = b_.CreateVector(m.staleness);
    const auto ticks = Structs<wire::WorkerTick>(
        m.fenced_ticks, limits::kFencedTicksMax, "fenced_ticks",
        [](const WorkerTick& t) { return wire::WorkerTick(t.incarnation.value, t.clock.value, Position(t.position)); });
    return wire::CreateHeartbeat(b_, m.view.value, m.proposal, m.clock.value, m.acked_clock.value, &position, fenced,
                                 counters, staleness, m.writing.value, ticks, m.log_synced.value, m.log_bytes,
                                 m.drained);
  }

  Offset<wire::HeartbeatAck> Write(const HeartbeatAck& m) { return wire::CreateHeartbeatAck(b_, m.view.value); }

  Offset<wire::ViewUpdate> Write(const ViewUpdate& m) {
    const auto view = WriteView(m.view);
    return wire::CreateViewUpdate(b_, view);
  }

  Offset<wire::CreateTable> Write(const CreateTable& m) {
    const auto spec = Spec(m.spec);
    const auto text = Text(m.message);
    return wire::CreateCreateTable(b_, spec, Code(m.code), text);
  }

  Offset<wire::Barrier> Write(const Barrier& m) { return wire::CreateBarrier(b_, m.number); }

  Offset<wire::LeaseRequest> Write(const LeaseRequest& m) {
    const auto done = Tables<wire::LeaseDone>(m.done, limits::kLeasesPerWorkerMax, "done",
                                              [this](const LeaseDone& lease) { return Done(lease); });
    const wire::SetRows rows(m.rows[0], m.rows[1], m.rows[2]);
    return wire::CreateLeaseRequest(b_, m.number, m.want, done, &rows);
  }

  Offset<wire::LeaseReply> Write(const LeaseReply& m) {
    const auto grants =
        Structs<wire::LeaseGrant>(m.grants, limits::kLeasesPerWorkerMax, "grants", [](const LeaseGrant& g) {
          return wire::LeaseGrant(g.lease.value, Cast<wire::LeasePurpose>(g.purpose), g.epoch, g.first_row, g.rows,
                                  g.skip_rows);
        });
    return wire::CreateLeaseReply(b_, m.number, grants, m.jump_to.value, m.finished);
  }

  Offset<wire::CheckpointFile> File(const CheckpointFile& m, std::string_view field) {
    const auto name = String(m.name, limits::kNameBytesMax, field);
    return wire::CreateCheckpointFile(b_, name, m.bytes, m.crc32c, m.rows, m.removed, m.seen, m.first.value,
                                      m.last.value);
  }

  Offset<wire::CheckpointPart> Write(const CheckpointPart& m) {
    const auto text = Text(m.message);
    const auto files =
        Tables<wire::CheckpointFile>(m.files, limits::kCheckpointFilesMax, "files",
                                     [this](const CheckpointFile& file) { return File(file, "files[].name"); });
    const auto position = Position(m.position);
    const auto tables =
        Structs<wire::CheckpointTable>(m.tables, limits::kTablesMax, "tables", [](const CheckpointTable& t) {
          return wire::CheckpointTable(t.table.value, t.rows, t.removed, t.seen, t.state_rows);
        });
    wire::CheckpointPartBuilder part(b_);
    part.add_id(m.id.value);
    part.add_code(Code(m.code));
    part.add_message(text);
    part.add_files(files);
    part.add_max_clock(m.max_clock.value);
    part.add_state_hash(m.state_hash);
    part.add_position(&position);
    part.add_clock(m.clock.value);
    part.add_tables(tables);
    if (m.whole_hash) part.add_whole_hash(*m.whole_hash);
    return part.Finish();
  }

  Offset<wire::CheckpointRequest> Write(const CheckpointRequest& m) {
    const auto text = Text(m.message);
    const auto directory = String(m.directory, limits::kPathBytesMax, "directory");
    return wire::CreateCheckpointRequest(b_, m.number, Code(m.code), text, directory);
  }

  Offset<wire::PutBlob> Write(const PutBlob& m) {
    return wire::CreatePutBlob(b_, m.checkpoint.value, m.offset, m.total);
  }

  Offset<wire::PutBlobAck> Write(const PutBlobAck& m) {
    const auto file = File(m.file, "file.name");
    return wire::CreatePutBlobAck(b_, m.checkpoint.value, m.received, file);
  }

  Offset<wire::GetBlob> Write(const GetBlob& m) { return wire::CreateGetBlob(b_, m.offset); }

  Offset<wire::BlobPiece> Write(const BlobPiece& m) { return wire::CreateBlobPiece(b_, m.offset, m.total); }

  Offset<wire::Leave> Write(const Leave& m) {
    const auto position = Position(m.position);
    return wire::CreateLeave(b_, m.clock.value, &position);
  }

  Offset<wire::Shutdown> Write(const Shutdown& m) {
    const auto text = Text(m.reason);
    return wire::CreateShutdown(b_, Code(m.code), text);
  }

  FlatBufferBuilder& b_;
  Status status_;
};

}  // namespace

Status BuildHeader(const Message& message, FlatBufferBuilder* builder) { return Writer(builder).Finish(message); }

}  // namespace tarn::net
