#include "net/header.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include "core/codec/quality_codec.h"
#include "core/codec/schema_check.h"
#include "core/limits.h"
#include "net/data_header.h"
#include "wire_generated.h"

namespace tarn::net {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::Table;

constexpr std::size_t kBodies = std::variant_size_v<Body>;
static_assert(static_cast<std::size_t>(wire::Body::MAX) == kBodies,
              "the union's numbers are 1 + the variant's indices");

// Prefixes the error with the name of the message.
void NameBody(std::size_t body, Status* status) {
  if (!*status) [[unlikely]]
    status->error().message = fmt::format("{}.{}", kBodyNames[body], status->error().message);
}

// The rules of messages outside the data plane, by their index in Body.
const TableRules& RulesOf(std::size_t body) {
  static const auto kRules = [] {
    std::array<const TableRules*, kBodies> rules{};
    for (std::size_t i = 0; i < kBodies; ++i) rules[i] = &WireRules().Of(fmt::format("tarn.wire.{}", kBodyNames[i]));
    return rules;
  }();
  return *kRules[body];
}

// Performs the checks that the rules of the schema cannot express.
void CheckTable(const wire::LeaseRequest& m, Status* status) {
  if (m.done() == nullptr) return;
  for (const wire::LeaseDone* done : *m.done())
    if (Status quality = CheckQuality(*done->quality()); !quality) {
      *status = Fail(quality.error().code, "done[].quality." + quality.error().message);
      return;
    }
}
template <typename Other>
void CheckTable(const Other&, Status*) {}

template <std::size_t I>
void CheckBody(const void* table, std::size_t header_bytes, Status* status) {
  using T = std::variant_alternative_t<I, Body>;
  Check(RulesOf(I), *static_cast<const Table*>(table), header_bytes, status);
  if (*status) CheckTable(*static_cast<const typename T::TableType*>(table), status);
}

template <std::size_t I>
void ReadBody(const void* table, std::size_t header_bytes, PayloadReader* payload, Message* message, Status* status) {
  using T = std::variant_alternative_t<I, Body>;
  T& out = message->body.emplace<I>();
  if constexpr (DataMessage<T>) {
    ReadData(*static_cast<const typename DataTable<T>::type*>(table), payload, &out, status);
  } else {
    CheckBody<I>(table, header_bytes, status);
    if (*status) static_cast<const typename T::TableType*>(table)->UnPackTo(&out);
    message->values = payload->TakeValues(payload->values_left(), status);
  }
}

template <std::size_t I>
Offset<void> WriteBody(FlatBufferBuilder* builder, const Body& body, Status* status) {
  using T = std::variant_alternative_t<I, Body>;
  const T& m = *std::get_if<I>(&body);
  if constexpr (DataMessage<T>) {
    return WriteData(builder, m, status);
  } else {
    return T::TableType::Pack(*builder, &m).Union();
  }
}

// Corrects the texts for users in a written message outside the data plane, then checks it like a read one.
template <std::size_t I>
void CheckWritten(FlatBufferBuilder* builder, Status* status) {
  if constexpr (!DataMessage<std::variant_alternative_t<I, Body>>) {
    auto* header = flatbuffers::GetMutableRoot<Table>(builder->GetBufferPointer());
    auto* table = header->GetPointer<Table*>(wire::Header::VT_BODY);
    MendTexts(RulesOf(I), table);
    CheckBody<I>(table, builder->GetSize(), status);
  }
}

// Reads and writes a message, by its index in Body.
struct BodyCodec {
  void (*read)(const void* table, std::size_t header_bytes, PayloadReader* payload, Message* message, Status* status);
  Offset<void> (*write)(FlatBufferBuilder* builder, const Body& body, Status* status);
  void (*check_written)(FlatBufferBuilder* builder, Status* status);
};
constexpr auto kCodecs = []<std::size_t... I>(std::index_sequence<I...>) {
  return std::array<BodyCodec, kBodies>{{{&ReadBody<I>, &WriteBody<I>, &CheckWritten<I>}...}};
}(std::make_index_sequence<kBodies>());

Status Malformed(std::string text) { return Fail(ErrorCode::kMalformed, std::move(text)); }

void Read(const wire::Header& header, std::size_t header_bytes, PayloadReader* payload, Message* out, Status* status) {
  const auto type = static_cast<std::size_t>(header.body_type());
  if (type == 0 || type > kBodies) {
    *status = Malformed(fmt::format("body: type {}, expected 1 to {}", type, kBodies));
    return;
  }
  out->job = header.job();
  out->sender = {header.role(), header.rank(), Incarnation(header.incarnation())};
  out->epoch = Epoch(header.epoch());
  if (header.role() > wire::Role::MAX) {
    *status = Malformed(fmt::format("sender.role: value {}, expected 0 to {}", static_cast<unsigned>(header.role()),
                                    static_cast<unsigned>(wire::Role::MAX)));
  } else if (header.body() == nullptr) {
    *status = Malformed("body: missing");
  } else {
    kCodecs[type - 1].read(header.body(), header_bytes, payload, out, status);
    if (*status) *status = payload->CheckEnd();
  }
  NameBody(type - 1, status);
}

}  // namespace

Status BuildHeader(const Message& message, FlatBufferBuilder* builder) {
  const std::size_t index = message.body.index();
  Status status;
  const auto body = kCodecs[index].write(builder, message.body, &status);
  builder->Finish(wire::CreateHeader(*builder, message.job, message.sender.role, message.sender.rank,
                                     message.sender.incarnation.value, message.epoch.value,
                                     static_cast<wire::Body>(index + 1), body));
  if (status) kCodecs[index].check_written(builder, &status);
  NameBody(index, &status);
  return status;
}

Status ReadHeader(std::span<const std::byte> bytes, PayloadReader* payload, Message* message) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), limits::kHeaderDepthMax, limits::kHeaderTablesMax);
  if (!wire::VerifyHeaderBuffer(verifier))
    return Fail(ErrorCode::kMalformed,
                fmt::format("header: {} bytes, expected a FlatBuffer of wire.fbs", bytes.size()));
  Status status;
  Read(*wire::GetHeader(data), bytes.size(), payload, message, &status);
  return status;
}

}  // namespace tarn::net
