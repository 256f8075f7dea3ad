// Writes JSON text into a string: objects, arrays, numbers that read back as the same value, escaped strings.
//
//   JsonWriter json;
//   json.BeginObject();
//   json.Member("job", "flights").Member("samples", 261878).Member("auc", 0.763);
//   json.Key("shards").BeginArray().Value(1).Value(2).EndArray();
//   json.EndObject();
//   WriteFileAtomic("summary.json", json.text() + "\n");
//
// One value at the top; calls out of order are a programmer's error and stop the program.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

class JsonWriter {
 public:
  // indent > 0: one member a line, indented by so many blanks a level; 0: all on one line.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  JsonWriter& Key(std::string_view key);

  // UTF-8; bytes that are not become U+FFFD.
  JsonWriter& Value(std::string_view text);
  JsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  JsonWriter& Value(bool value);
  // The shortest digits that read back as the same number; NaN and infinity, which JSON has not, become null.
  JsonWriter& Value(double value);
  JsonWriter& Value(float value);
  template <std::integral T>
  JsonWriter& Value(T value) {
    if constexpr (std::signed_integral<T>)
      return Raw(std::to_string(static_cast<long long>(value)));
    else
      return Raw(std::to_string(static_cast<unsigned long long>(value)));
  }
  JsonWriter& Null() { return Raw("null"); }

  template <typename T>
  JsonWriter& Member(std::string_view key, const T& value) {
    return Key(key).Value(value);
  }

  // All that was written; complete once every Begin has its End.
  const std::string& text() const { return text_; }

 private:
  enum class Scope : std::uint8_t { kObject, kArray };

  JsonWriter& Raw(std::string_view token);
  JsonWriter& Begin(Scope scope, char bracket);
  JsonWriter& End(Scope scope, char bracket);
  void BeforeValue();
  void Separate();
  void NewLine();
  void AppendString(std::string_view text);

  int indent_;
  std::string text_;
  std::vector<Scope> scopes_;
  bool empty_ = true;  // the innermost scope has no member yet
  bool after_key_ = false;
  bool done_ = false;
};

}  // namespace tarn
