#include "core/json.h"

#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/utf8.h"

namespace tarn {
namespace {

std::string_view ShortEscape(char c) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return {};
  }
}

template <typename T>
std::string Shortest(T value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  return {digits, end.ptr};
}

}  // namespace

void JsonWriter::NewLine() {
  if (indent_ <= 0) return;
  text_ += '\n';
  text_.append(scopes_.size() * std::size_t(indent_), ' ');
}

void JsonWriter::Separate() {
  if (!empty_) text_ += ',';
  empty_ = false;
  NewLine();
}

void JsonWriter::BeforeValue() {
  if (scopes_.empty()) {
    TARN_CHECK(!done_, "JSON: a second value at the top");
    done_ = true;
    return;
  }
  if (scopes_.back() == Scope::kObject) {
    TARN_CHECK(after_key_, "JSON: a value in an object needs a key");
    after_key_ = false;
    return;
  }
  Separate();
}

JsonWriter& JsonWriter::Raw(std::string_view token) {
  BeforeValue();
  text_ += token;
  return *this;
}

JsonWriter& JsonWriter::Begin(Scope scope, char bracket) {
  BeforeValue();
  text_ += bracket;
  scopes_.push_back(scope);
  empty_ = true;
  return *this;
}

JsonWriter& JsonWriter::End(Scope scope, char bracket) {
  TARN_CHECK(!scopes_.empty() && scopes_.back() == scope && !after_key_, "JSON: an end without its begin");
  scopes_.pop_back();
  if (!empty_) NewLine();
  text_ += bracket;
  empty_ = false;
  return *this;
}

JsonWriter& JsonWriter::BeginObject() { return Begin(Scope::kObject, '{'); }
JsonWriter& JsonWriter::EndObject() { return End(Scope::kObject, '}'); }
JsonWriter& JsonWriter::BeginArray() { return Begin(Scope::kArray, '['); }
JsonWriter& JsonWriter::EndArray() { return End(Scope::kArray, ']'); }

JsonWriter& JsonWriter::Key(std::string_view key) {
  TARN_CHECK(!scopes_.empty() && scopes_.back() == Scope::kObject && !after_key_,
             "JSON: a key belongs into an object, before a value");
  Separate();
  AppendString(key);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::Value(std::string_view text) {
  BeforeValue();
  AppendString(text);
  return *this;
}

JsonWriter& JsonWriter::Value(bool value) { return Raw(value ? "true" : "false"); }
JsonWriter& JsonWriter::Value(double value) { return Raw(Shortest(value)); }
JsonWriter& JsonWriter::Value(float value) { return Raw(Shortest(value)); }

void JsonWriter::AppendString(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  text_ += '"';
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    const unsigned char c = static_cast<unsigned char>(text.front());
    if (length == 0) {
      text_ += "\\ufffd";
    } else if (const auto escape = ShortEscape(text.front()); !escape.empty()) {
      text_ += escape;
    } else if (c < 0x20 || c == 0x7f) {
      text_ += "\\u00";
      text_ += kHex[c >> 4];
      text_ += kHex[c & 15];
    } else {
      text_ += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

}  // namespace tarn
