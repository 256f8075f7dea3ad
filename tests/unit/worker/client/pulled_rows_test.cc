// Shows that each row of the replies is placed once, in the plan's order or in the caller's, for any parts and codecs,
// and that a reply with all rows of a pull is kept without a copy.
#include "worker/client/pulled_rows.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/hash.h"
#include "core/position.h"
#include "kernels/convert.h"

namespace tarn::worker {
namespace {

constexpr std::uint32_t kPartitionBits = 4;

float ValueOf(Key key, std::uint32_t column) { return float(key % 97) + 0.5f * float(column % 4); }

struct Pulled {
  Pulled(std::uint32_t row_dim, std::size_t n, std::uint64_t distinct) : dim(row_dim) {
    SplitMix random(n + distinct);
    for (std::size_t i = 0; i < n; ++i) keys.push_back(Mix64(random.Below(distinct)));
    TableSpec spec;
    spec.dim = dim;
    Planner(kPartitionBits).Make(TableId(1), dim, Positioner(spec, 1), keys, &plan, &order);
  }

  // A reply with every `step`-th partition of the plan from `first` on.
  PulledRows Reply(std::size_t first, std::size_t step, ValueCodec codec) {
    parts.clear();
    std::vector<float> rows;
    for (std::size_t i = first; i < plan.runs.size(); i += step) {
      parts.push_back(plan.runs[i]);
      for (std::uint32_t k = 0; k < plan.runs[i].count; ++k)
        for (std::uint32_t d = 0; d < dim; ++d) rows.push_back(ValueOf(plan.keys[plan.runs[i].begin + k], d));
    }
    Buffer values = Buffer::Allocate(rows.size() / dim * CodecRowBytes(codec, dim));
    kernels::EncodeRows(codec, dim, rows.size() / dim, rows.data(), values.data());
    return {parts, codec, std::move(values)};
  }

  std::uint32_t dim;
  std::vector<Key> keys;
  Plan plan;
  CallerOrder order;
  std::vector<PlanRun> parts;
};

TEST(PulledRows, ArePlacedInThePlansAndTheCallersOrder) {
  for (const ValueCodec codec : {ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16, ValueCodec::kInt8})
    for (const std::uint32_t dim : {1u, 3u, 16u, limits::kRowDimMax})
      for (const std::size_t step : {1u, 2u, 5u}) {
        Pulled pull(dim, dim > 1000 ? 50 : 700, 200);
        std::vector<float> planned(pull.plan.keys.size() * dim), called(pull.keys.size() * dim);
        for (std::size_t first = 0; first < step; ++first) {
          const PulledRows reply = pull.Reply(first, step, codec);
          CopyToPlanOrder(reply, dim, planned.data());
          CopyToCallerOrder(reply, dim, pull.order, called.data());
        }
        CopyRepeats(dim, pull.order, called.data());
        const float tolerance = codec == ValueCodec::kInt8 || codec == ValueCodec::kBf16 ? 0.6f : 0.0f;
        for (std::size_t i = 0; i < planned.size(); ++i)
          ASSERT_NEAR(planned[i], ValueOf(pull.plan.keys[i / dim], std::uint32_t(i % dim)), tolerance);
        for (std::size_t i = 0; i < called.size(); ++i)
          ASSERT_EQ(called[i], planned[pull.plan.index[i / dim] * dim + i % dim]);
      }
}

TEST(PulledRows, AReplyWithAllRowsIsKeptUnlessItIsLent) {
  Pulled pull(4, 100, 60);
  for (const bool lent : {false, true}) {
    PulledRows reply = pull.Reply(0, 1, ValueCodec::kFp32);
    const auto owner = std::make_shared<Buffer>(reply.values);
    if (lent) reply.values = Buffer::Lend(owner->data(), owner->size(), owner);
    PlanRows rows(pull.plan);
    rows.Take(reply);
    EXPECT_EQ(rows.values().data() == owner->data(), !lent);
    EXPECT_FALSE(rows.values().lent());
    const auto values = rows.Release();
    for (std::size_t i = 0; i < pull.plan.keys.size() * 4; ++i)
      EXPECT_EQ(values.as<float>()[i], ValueOf(pull.plan.keys[i / 4], std::uint32_t(i % 4)));
  }
}

TEST(PulledRows, APullWithoutKeysHasNoRows) {
  Pulled pull(4, 0, 1);
  EXPECT_TRUE(PlanRows(pull.plan).values().empty());
  CopyRepeats(4, pull.order, nullptr);
}

}  // namespace
}  // namespace tarn::worker
