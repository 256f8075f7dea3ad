// Shows for every field of every message that Decode names it when it is invalid: an enum without a known value, a
// missing table or struct, a string that is not UTF-8, a body of another type. The schema provides the fields.
#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/reflection_generated.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/hash.h"
#include "net/frame.h"
#include "net/header.h"
#include "net/payload.h"
#include "tests/unit/net/random_message.h"
#include "wire_bfbs_generated.h"

namespace tarn::net {
namespace {

using flatbuffers::Table;
using reflection::BaseType;

const reflection::Schema& Schema() { return *reflection::GetSchema(wire::HeaderBinarySchema::data()); }
const reflection::Object& ObjectAt(int index) { return *Schema().objects()->Get(static_cast<unsigned>(index)); }

bool IsEnum(const reflection::Type& type) {
  return type.index() >= 0 && (type.base_type() == BaseType::UByte || type.base_type() == BaseType::UType);
}
std::uint8_t EnumeratorsOf(const reflection::Type& type) {
  return static_cast<std::uint8_t>(Schema().enums()->Get(static_cast<unsigned>(type.index()))->values()->size());
}
bool Has(const reflection::Field& field, const char* attribute) {
  return field.attributes() != nullptr && field.attributes()->LookupByKey(attribute) != nullptr;
}

// The names of all fields that can be made invalid, such as "Heartbeat.position" or "LeaseReply.grants[].purpose".
std::set<std::string> FieldsOf(const reflection::Object& object, const std::string& path) {
  std::set<std::string> fields;
  for (const auto* field : *object.fields()) {
    const auto& type = *field->type();
    const std::string name = path + field->name()->str();
    const bool many = type.base_type() == BaseType::Vector;
    if (IsEnum(type) || (type.base_type() == BaseType::String && !Has(*field, "bytes"))) fields.insert(name);
    if (many && type.element() == BaseType::String) fields.insert(name + "[]");
    const bool nested = type.base_type() == BaseType::Obj || (many && type.element() == BaseType::Obj);
    if (type.base_type() == BaseType::Obj && !Has(*field, "optional") && !object.is_struct()) fields.insert(name);
    if (nested) fields.merge(FieldsOf(ObjectAt(type.index()), name + (many ? "[]." : ".")));
  }
  return fields;
}

// Makes the fields of one encoded message invalid, one at a time, and restores each.
class Spoiler {
 public:
  // spoilt: receives the fields that the message has. expect_refused: is called while one of them is invalid.
  Spoiler(std::set<std::string>* spoilt, std::function<void(const std::string&)> expect_refused)
      : spoilt_(*spoilt), expect_refused_(std::move(expect_refused)) {}

  void Visit(const reflection::Object& object, std::uint8_t* at, const std::string& path) {
    auto* table = reinterpret_cast<Table*>(at);
    for (const auto* field : *object.fields()) {
      const std::string name = path + field->name()->str();
      std::uint8_t* value = object.is_struct() ? at + field->offset() : table->GetAddressOf(field->offset());
      if (value == nullptr) continue;
      VisitField(*field, value, name);
      if (object.is_struct() || field->type()->base_type() != BaseType::Obj || Has(*field, "optional")) continue;
      auto* vtable = const_cast<std::uint8_t*>(table->GetVTable());
      Try(name, vtable + field->offset(), {0, 0});  // the field is missing
    }
  }

 private:
  void VisitField(const reflection::Field& field, std::uint8_t* value, const std::string& name) {
    const auto& type = *field.type();
    const auto* object =
        type.index() >= 0 && !IsEnum(type) && type.base_type() != BaseType::Union ? &ObjectAt(type.index()) : nullptr;
    if (IsEnum(type)) {
      Try(name, value, {EnumeratorsOf(type)});
      Try(name, value, {0xff});
    } else if (type.base_type() == BaseType::Obj) {
      Visit(*object, object->is_struct() ? value : Follow(value), name + ".");
    } else if (type.base_type() == BaseType::String && !Has(field, "bytes")) {
      SpoilString(Follow(value), name);
    } else if (type.base_type() == BaseType::Vector) {
      VisitItems(type, object, Follow(value), name);
    }
  }

  void VisitItems(const reflection::Type& type, const reflection::Object* object, std::uint8_t* list,
                  const std::string& name) {
    const auto items = flatbuffers::ReadScalar<flatbuffers::uoffset_t>(list);
    std::uint8_t* first = list + sizeof(items);
    for (const std::size_t i : {std::size_t{0}, std::size_t{items} - 1}) {
      if (items == 0) return;
      if (type.element() == BaseType::String) {
        SpoilString(Follow(first + i * sizeof(items)), name + "[]");
      } else if (object != nullptr && object->is_struct()) {
        Visit(*object, first + i * static_cast<std::size_t>(object->bytesize()), name + "[].");
      } else if (object != nullptr) {
        Visit(*object, Follow(first + i * sizeof(items)), name + "[].");
      }
    }
  }

  void SpoilString(std::uint8_t* string, const std::string& name) {
    const auto size = flatbuffers::ReadScalar<flatbuffers::uoffset_t>(string);
    if (size != 0) Try(name, string + sizeof(size) + size - 1, {0xc3});  // the first of two bytes of a character
  }

  static std::uint8_t* Follow(std::uint8_t* offset) {
    return offset + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(offset);
  }

  void Try(const std::string& name, std::uint8_t* at, const std::vector<std::uint8_t>& bytes) {
    const std::vector<std::uint8_t> before(at, at + bytes.size());
    std::ranges::copy(bytes, at);
    expect_refused_(name);
    std::ranges::copy(before, at);
    spoilt_.insert(name);
  }

  std::set<std::string>& spoilt_;
  std::function<void(const std::string&)> expect_refused_;
};

class EveryField : public ::testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(Bodies, EveryField, ::testing::Range<std::size_t>(0, std::variant_size_v<Body>),
                         [](const auto& body) { return std::string(kBodyNames[body.param]); });

TEST_P(EveryField, IsRefusedByNameWhenInvalid) {
  const std::string body(kBodyNames[GetParam()]);
  const auto& object = *Schema().objects()->LookupByKey(("tarn.wire." + body).c_str());
  const auto& header = *Schema().objects()->LookupByKey("tarn.wire.Header");
  std::set<std::string> spoilt;
  SplitMix random(GetParam());
  for (int i = 0; i < 40; ++i) {
    const Message message = testing::RandomMessage(&random, GetParam(), 6);
    flatbuffers::FlatBufferBuilder builder;
    builder.ForceDefaults(true);  // so that enums with their first value are encoded too
    ASSERT_TRUE(BuildHeader(message, &builder));
    PayloadFrame key_buffers, value_buffers;
    AddPayload(message, &key_buffers, &value_buffers);
    const Buffer keys = key_buffers.Join(), values = value_buffers.Join();
    const auto read = [&] {
      PayloadReader payload({keys.data(), keys.size()}, {values.data(), values.size()}, nullptr);
      Message back;
      return ReadHeader(std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize())), &payload, &back);
    };
    ASSERT_TRUE(read());
    Spoiler spoiler(&spoilt, [&](const std::string& name) {
      const auto result = read();
      ASSERT_FALSE(result) << name;
      EXPECT_EQ(result.error().code, ErrorCode::kMalformed) << name;
      const bool of_header = name == "role" || name == "body_type";
      const std::string field = name.substr(0, name.rfind(".value"));  // one-number structs: the field's name
      EXPECT_TRUE(of_header || result.error().message.starts_with(fmt::format("{}.{}:", body, field)))
          << name << ": " << result.error().message;
    });
    auto* root = flatbuffers::GetMutableRoot<Table>(builder.GetBufferPointer());
    spoiler.Visit(header, reinterpret_cast<std::uint8_t*>(root), "");
    spoiler.Visit(object, root->GetPointer<std::uint8_t*>(header.fields()->LookupByKey("body")->offset()), "");
  }
  std::set<std::string> all = FieldsOf(object, "");
  all.insert({"role", "body_type"});
  EXPECT_EQ(spoilt, all);
}

}  // namespace
}  // namespace tarn::net
