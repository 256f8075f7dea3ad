#include "core/codec/quality_codec.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/limits.h"

namespace tarn {
namespace {

static_assert(Quality::kBuckets == limits::kQualityBucketsMax && Quality::kBuckets <= UINT16_MAX + 1u);

template <typename List>
std::size_t SizeOf(const List* list) {
  return list == nullptr ? 0 : list->size();
}

}  // namespace

Status CheckQuality(const wire::Quality& m) {
  const std::size_t buckets = SizeOf(m.bucket());
  if (SizeOf(m.bucket_negatives()) != buckets || SizeOf(m.bucket_positives()) != buckets)
    return Fail(ErrorCode::kMalformed,
                fmt::format("bucket: {} items, with {} negatives and {} positives, expected equally many", buckets,
                            SizeOf(m.bucket_negatives()), SizeOf(m.bucket_positives())));
  for (flatbuffers::uoffset_t i = 1; i < buckets; ++i)
    if (m.bucket()->Get(i) <= m.bucket()->Get(i - 1))
      return Fail(ErrorCode::kMalformed, fmt::format("bucket: {} after {}, expected ascending order",
                                                     m.bucket()->Get(i), m.bucket()->Get(i - 1)));
  return {};
}

namespace wire {

void Quality::UnPackTo(QualityT* o, const flatbuffers::resolver_function_t*) const {
  o->rows = rows();
  o->positives = positives();
  o->correct = correct();
  o->loss_sum = loss_sum();
  const std::size_t buckets = std::min({SizeOf(bucket()), SizeOf(bucket_negatives()), SizeOf(bucket_positives())});
  o->buckets.clear();
  o->buckets.reserve(buckets);
  for (flatbuffers::uoffset_t i = 0; i < buckets; ++i)
    o->buckets.emplace_back(bucket()->Get(i), QualityT::Bucket{bucket_negatives()->Get(i), bucket_positives()->Get(i)});
}

flatbuffers::Offset<Quality> CreateQuality(flatbuffers::FlatBufferBuilder& builder, const QualityT* o,
                                           const flatbuffers::rehasher_function_t*) {
  const std::size_t buckets = o->buckets.size();
  std::uint16_t* bucket = nullptr;
  std::uint32_t* counts = nullptr;
  const auto bucket_at = builder.CreateUninitializedVector(buckets, &bucket);
  for (const auto& [index, _] : o->buckets) *bucket++ = static_cast<std::uint16_t>(index);
  const auto negatives_at = builder.CreateUninitializedVector(buckets, &counts);
  for (const auto& [_, both] : o->buckets) *counts++ = both.negatives;
  const auto positives_at = builder.CreateUninitializedVector(buckets, &counts);
  for (const auto& [_, both] : o->buckets) *counts++ = both.positives;
  return CreateQuality(builder, o->rows, o->positives, o->correct, o->loss_sum, bucket_at, negatives_at, positives_at);
}

}  // namespace wire
}  // namespace tarn
