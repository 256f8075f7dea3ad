// Shows for every list and string of the wire's schema that it is accepted at its limit and refused one past it; the
// schema provides the list of them. Also that texts are truncated at a character, and that lists which share bytes are
// refused.
#include "core/codec/schema_check.h"

#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/reflection_generated.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/limits.h"
#include "core/utf8.h"
#include "wire_bfbs_generated.h"
#include "wire_generated.h"

namespace tarn {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Table;

constexpr std::size_t kAnyBytes = ~std::size_t{0};

// A table that has this one field, which `make` builds.
template <typename Make>
const Table* TableWith(FlatBufferBuilder* b, const FieldRule& rule, Make make) {
  const flatbuffers::Offset<void> value = make();
  const auto start = b->StartTable();
  b->AddOffset(rule.offset, value);
  b->Finish(flatbuffers::Offset<Table>(b->EndTable(start)));
  return flatbuffers::GetRoot<Table>(b->GetBufferPointer());
}

flatbuffers::Offset<void> Items(FlatBufferBuilder* b, const FieldRule& rule, std::size_t count) {
  b->StartVector(count * rule.item_bytes, 1);
  b->ForceVectorAlignment(count * rule.item_bytes, 1, rule.align);
  b->EndVector(0);
  b->Clear();
  b->ForceVectorAlignment(count * rule.item_bytes, 1, rule.align);
  b->StartVector(count * rule.item_bytes, 1);
  for (std::size_t i = 0; i < count * rule.item_bytes; ++i) b->PushElement(std::uint8_t{0});
  return b->EndVector(count);
}

// A list or string of `count` items or bytes, each string of a list of `each` bytes.
std::string ErrorOf(FieldRule rule, std::size_t count, std::size_t each) {
  static const TableRules kNone;
  FlatBufferBuilder b;
  rule.table = &kNone;
  const Table* table = TableWith(&b, rule, [&]() -> flatbuffers::Offset<void> {
    if (rule.kind == FieldKind::kString) return b.CreateString(std::string(count, 'x')).Union();
    if (rule.kind == FieldKind::kItems) return Items(&b, rule, count);
    flatbuffers::Offset<void> item;
    if (rule.kind == FieldKind::kStrings) item = b.CreateString(std::string(each, 'x')).Union();
    if (rule.kind == FieldKind::kTables) item = flatbuffers::Offset<void>(b.EndTable(b.StartTable()));
    return b.CreateVector(std::vector<flatbuffers::Offset<void>>(count, item)).Union();
  });
  const Status status = Check({{rule}}, *table, kAnyBytes);
  return status ? "" : ToString(status.error());
}

TEST(SchemaCheck, EveryLimitHolds) {
  int lists = 0;
  for (const auto* object : *reflection::GetSchema(wire::HeaderBinarySchema::data())->objects()) {
    if (object->is_struct()) continue;
    for (const FieldRule& rule : WireRules().Of(object->name()->string_view()).fields) {
      const std::string name = object->name()->str() + "." + rule.name;
      if (rule.limit == 0) continue;
      ++lists;
      EXPECT_EQ(ErrorOf(rule, rule.limit, 1), "") << name;
      EXPECT_TRUE(ErrorOf(rule, rule.limit + 1, 1).starts_with("too-large: " + rule.name + ": ")) << name;
      if (rule.kind != FieldKind::kStrings) continue;
      EXPECT_EQ(ErrorOf(rule, 1, rule.each), "") << name;
      EXPECT_TRUE(ErrorOf(rule, 1, rule.each + 1).starts_with("too-large: " + rule.name + "[]: ")) << name;
    }
  }
  EXPECT_GE(lists, 30);
}

TEST(SchemaCheck, ListsThatShareBytesAreTooLarge) {
  const FieldRule rule = WireRules().Of("tarn.wire.RouteMap").fields.back();
  ASSERT_EQ(rule.name, "endpoints");
  FlatBufferBuilder b;
  const Table* table = TableWith(
      &b, rule, [&] { return b.CreateVector(std::vector(100, b.CreateString(std::string(200, 'x')))).Union(); });
  EXPECT_TRUE(Check({{rule}}, *table, 100 * (200 + 4)));
  const Status status = Check({{rule}}, *table, b.GetSize());
  ASSERT_FALSE(status);
  EXPECT_TRUE(status.error().message.starts_with("endpoints[]: ")) << status.error().message;
}

// What MendTexts makes of a reason.
std::string Mended(const std::string& reason) {
  const TableRules& rules = WireRules().Of("tarn.wire.Shutdown");
  FlatBufferBuilder b;
  const Shutdown shutdown{ErrorCode::kIo, reason};
  b.Finish(wire::Shutdown::Pack(b, &shutdown));
  auto* table = flatbuffers::GetMutableRoot<Table>(b.GetBufferPointer());
  MendTexts(rules, table);
  EXPECT_TRUE(Check(rules, *table, b.GetSize()));
  flatbuffers::Verifier verifier(b.GetBufferPointer(), b.GetSize());
  EXPECT_TRUE(verifier.VerifyBuffer<wire::Shutdown>());
  Shutdown back;
  reinterpret_cast<const wire::Shutdown*>(table)->UnPackTo(&back);
  return back.reason;
}

TEST(SchemaCheck, InvalidTextsAreMended) {
  const std::string euro = "\xe2\x82\xac";
  EXPECT_EQ(Mended(""), "");
  EXPECT_EQ(Mended("disk full"), "disk full");
  EXPECT_EQ(Mended("a\xff"
                   "b\xc3"),
            "a?b?");
  EXPECT_EQ(Mended(euro + "\xe2\x82"), euro + "??");
  const std::string longest(limits::kTextBytesMax, 'x');
  EXPECT_EQ(Mended(longest), longest);
  EXPECT_EQ(Mended(longest + "y"), longest);
  const std::string cut = longest.substr(0, limits::kTextBytesMax - 2);
  EXPECT_EQ(Mended(cut + euro), cut);
  EXPECT_EQ(Mended(cut + "x" + euro + euro), cut + "x");
}

}  // namespace
}  // namespace tarn
