#include "tests/unit/net/random_message.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/key_delta.h"
#include "core/limits.h"
#include "kernels/low_rank.h"
#include "kernels/sparse_values.h"
#include "tests/unit/net/fields.h"

namespace tarn::net::testing {
namespace {

constexpr std::uint64_t kTablesMax = 4;  // of a random pull, push or reply

// The last enumerator of an enum.
template <typename T>
constexpr T kLast{};
template <>
constexpr Role kLast<Role> = Role::kWorker;
template <>
constexpr KeyCodec kLast<KeyCodec> = KeyCodec::kHeld;
template <>
constexpr PushAction kLast<PushAction> = PushAction::kDelete;
template <>
constexpr ValueCodec kLast<ValueCodec> = ValueCodec::kLowRank;
template <>
constexpr ErrorCode kLast<ErrorCode> = ErrorCode::kDiverged;
template <>
constexpr WorkerState kLast<WorkerState> = WorkerState::kEnded;
template <>
constexpr LeasePurpose kLast<LeasePurpose> = LeasePurpose::kTest;
template <>
constexpr TableKind kLast<TableKind> = TableKind::kSparse;
template <>
constexpr InitializerKind kLast<InitializerKind> = InitializerKind::kNormal;
template <>
constexpr ScheduleKind kLast<ScheduleKind> = ScheduleKind::kCosine;
template <>
constexpr ConsistencyMode kLast<ConsistencyMode> = ConsistencyMode::kAsp;
template <>
constexpr ApplyMode kLast<ApplyMode> = ApplyMode::kAggregated;

// Fills values of any type with random bits; 0 and the largest values are frequent.
class Filler {
 public:
  Filler(SplitMix* random, std::size_t size) : random_(*random), size_(size) {}

  template <typename T>
  void Fill(T& v) {
    if constexpr (std::is_same_v<T, bool>) {
      v = random_.Chance(0.5);
    } else if constexpr (std::is_enum_v<T>) {
      v = static_cast<T>(random_.Below(static_cast<unsigned>(kLast<T>) + 1));
    } else if constexpr (std::is_integral_v<T>) {
      v = static_cast<T>(Word());
    } else if constexpr (std::is_same_v<T, float>) {
      v = std::bit_cast<float>(static_cast<std::uint32_t>(random_.Next()));
    } else if constexpr (std::is_same_v<T, double>) {
      v = std::bit_cast<double>(random_.Next());
    } else if constexpr (kIsId<T>) {
      Fill(v.value);
    } else {
      FillFields(v);
    }
  }

  void Fill(std::string& text) {
    static constexpr std::string_view kCharacters[] = {
        "a", "7", " ", "\n", "\x01", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    const std::size_t bytes = random_.Below(std::min<std::size_t>(size_, limits::kNameBytesMax) + 1);
    text.clear();
    while (text.size() + 4 <= bytes) text += kCharacters[random_.Below(std::size(kCharacters))];
    text.resize(bytes, '.');
  }

  template <typename T>
  void Fill(std::optional<T>& item) {
    item.reset();
    if (random_.Chance(0.5)) Fill(item.emplace());
  }

  template <typename T>
  void Fill(std::vector<T>& items) {
    items.resize(Length());
    for (T& item : items) Fill(item);
  }

  template <typename T>
  void Fill(TableParts<T>& parts) {
    parts.resize(1 + random_.Below(kTablesMax));
    for (T& part : parts) Fill(part);
  }

  void Fill(std::vector<std::pair<std::uint32_t, Quality::Bucket>>& buckets) {
    Quality quality;
    for (std::size_t n = Length(); n > 0; --n)
      Fill(quality.At(static_cast<std::uint32_t>(random_.Below(Quality::kBuckets))));
    buckets = std::move(quality.buckets);
  }

  void Fill(TableSpec& spec) {
    FillFields(spec);
    spec.dim = static_cast<std::uint32_t>(1 + random_.Below(limits::kRowDimMax));
  }

  // The specification of an existing rule.
  void Fill(OptimizerSpec& spec) {
    spec.kind = UpdateRules()[random_.Below(UpdateRules().size())]->name;
    Fill(spec.learning_rate);
    for (const RuleOption& option : FindUpdateRule(spec.kind)->options) Fill(spec.options[std::string(option.name)]);
    Fill(spec.l2);
    Fill(spec.clip_value);
    Fill(spec.clip_norm);
    Fill(spec.schedule);
  }

  void Fill(RouteMap& routes) {
    Fill(routes.epoch);
    if (random_.Chance(0.1)) return;
    routes.partition_bits = static_cast<std::uint32_t>(random_.Below(5));
    routes.endpoints.resize(1 + Length());
    for (std::string& endpoint : routes.endpoints) Fill(endpoint);
    for (std::uint32_t p = 0; p < 1u << routes.partition_bits; ++p)
      routes.owners.push_back(ShardId(static_cast<std::uint32_t>(random_.Below(routes.endpoints.size()))));
  }

  void Fill(KeyList& keys) {
    Fill(keys.codec);
    keys.count = 0;
    keys.sections.resize(Length());
    for (Section& section : keys.sections) {
      section.partition = PartitionId(static_cast<std::uint32_t>(random_.Below(1u << limits::kPartitionBitsMax)));
      section.count = static_cast<std::uint32_t>(random_.Below(size_ + 1));
      Fill(section.sequence);
      keys.count += section.count;
    }
    Fill(keys.first_key);
    Fill(keys.list);
    if (keys.codec == KeyCodec::kHeld) keys.list |= 1;
    if (keys.codec == KeyCodec::kRange) keys.first_key = random_.Below(~std::uint64_t{0} - keys.count);
    if (keys.codec == KeyCodec::kRaw) keys.frame = Bytes(keys.count * sizeof(Key));
    if (keys.codec == KeyCodec::kDelta) keys.frame = Bytes(DeltaBytesMin(keys.count) + keys.count);
  }

  void Fill(Buffer&) {}  // the values of a table, which are filled after its other fields (below)

  void Fill(ReplyPart& part) {
    FillFields(part);
    part.count = static_cast<std::uint32_t>(random_.Below(size_ * size_ + 1));
    if (!IsForPulls(part.codec)) part.codec = ValueCodec::kFp32;
    part.values = Rows(part.count, part.codec);
  }

  void Fill(PushPart& part) {
    FillFields(part);
    if (random_.Chance(0.5))
      for (Section& section : part.keys.sections) Fill(section.version);
    if (part.action != PushAction::kStep) part.codec = ValueCodec::kFp32, part.pulled.reset();
    if (part.pulled && (KeepsResiduals(part.codec) || !IsForPulls(*part.pulled))) part.pulled.reset();
    if (part.action != PushAction::kDelete) part.values = Rows(part.keys.count, part.codec, part.pulled);
  }

  // Random bytes as a piece of a blob, whose offset and size are set in `m`.
  template <typename T>
  Buffer FillPiece(T& m) {
    Buffer piece = Bytes(1 + random_.Below(2'000));
    m.total = piece.size() + random_.Below(limits::kBlobBytesMax - piece.size());
    m.offset = random_.Below(m.total - piece.size() + 1);
    return piece;
  }

 private:
  template <typename T>
  void FillFields(T& v) {
    std::apply([this](auto&... fields) { (this->Fill(fields), ...); }, Fields(v));
  }

  // The bytes of `count` rows in the codec and, with `pulled`, of as many rows in that one.
  Buffer Rows(std::size_t count, ValueCodec codec, std::optional<ValueCodec> pulled = {}) {
    if (count == 0) return {};
    const auto dim = static_cast<std::uint32_t>(1 + random_.Below(8));
    if (codec == ValueCodec::kTopK) return Bytes(kernels::kSparseBytesMin + count * dim);
    if (codec == ValueCodec::kLowRank) {
      const std::uint64_t most = std::min<std::uint64_t>(size_, limits::kPushRankMax);
      return Bytes(kernels::LowRankBytes(count, dim, static_cast<std::uint32_t>(1 + random_.Below(most))));
    }
    return Bytes(count * (CodecRowBytes(codec, dim) + (pulled ? CodecRowBytes(*pulled, dim) : 0)));
  }

  Buffer Bytes(std::size_t size) {
    Buffer bytes = Buffer::Allocate(size);
    for (std::size_t i = 0; i < size; ++i) bytes.data()[i] = static_cast<std::byte>(random_.Next());
    return bytes;
  }

  std::uint64_t Word() {
    const std::uint64_t word = random_.Next();
    switch (random_.Below(8)) {
      case 0: return 0;
      case 1: return ~std::uint64_t{0};
      case 2: return word % 100;
      default: return word;
    }
  }

  std::size_t Length() { return random_.Below(std::min<std::size_t>(size_, limits::kLeasesPerWorkerMax) + 1); }

  SplitMix& random_;
  std::size_t size_;
};

template <std::size_t I = 0>
void Emplace(Body* body, std::size_t index) {
  if constexpr (I < std::variant_size_v<Body>) {
    if (I == index) {
      body->emplace<I>();
    } else {
      Emplace<I + 1>(body, index);
    }
  }
}

}  // namespace

Message RandomMessage(SplitMix* random, std::size_t body, std::size_t size) {
  Filler filler(random, size);
  Message message;
  filler.Fill(message.job);
  filler.Fill(message.sender);
  filler.Fill(message.epoch);
  Emplace(&message.body, body);
  std::visit([&](auto& m) { filler.Fill(m); }, message.body);
  if (auto* put = std::get_if<PutBlob>(&message.body)) message.values = filler.FillPiece(*put);
  if (auto* piece = std::get_if<BlobPiece>(&message.body)) message.values = filler.FillPiece(*piece);
  return message;
}

}  // namespace tarn::net::testing
