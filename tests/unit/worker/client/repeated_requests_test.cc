// Shows that requests are repeated with growing pauses until they are removed, that those of one kind of which the
// scheduler keeps only the newest are sent one by one, and which of them a leaving worker waits for.
#include "worker/client/repeated_requests.h"

#include <gtest/gtest.h>

#include <vector>

namespace tarn::worker {
namespace {

constexpr TimeUs kResend = 1'000;
constexpr auto kAny = [](const auto&) { return true; };

class RepeatedRequestsTest : public ::testing::Test {
 protected:
  // The kinds of the requests that are due, as indices of Body. Adds the repeats.
  std::vector<std::size_t> Send(TimeUs now) {
    std::vector<std::size_t> kinds;
    repeats_ += requests_.SendDue(now, kResend, [&](const Body& body) { kinds.push_back(body.index()); });
    return kinds;
  }
  template <typename Kind>
  static std::size_t IndexOf() {
    return Body(Kind{}).index();
  }

  RepeatedRequests requests_;
  std::uint64_t repeats_ = 0;
};

TEST_F(RepeatedRequestsTest, AreRepeatedUntilTheyAreRemoved) {
  const TimeUs never = requests_.NextTimer();
  requests_.Add(CheckpointRequest{7, ErrorCode::kOk, {}, {}});
  EXPECT_EQ(requests_.NextTimer(), 0);
  TimeUs now = 50;
  for (const TimeUs pause : {1, 2, 4, 8, 8}) {
    EXPECT_EQ(Send(now).size(), 1u);
    EXPECT_TRUE(Send(now + pause * kResend - 1).empty());
    now += pause * kResend;
    EXPECT_EQ(requests_.NextTimer(), now);
  }
  EXPECT_EQ(repeats_, 4u) << "the first is none";
  EXPECT_FALSE(requests_.Remove<CheckpointRequest>([](const CheckpointRequest& r) { return r.number == 8; }));
  EXPECT_NE(requests_.Find<CheckpointRequest>(kAny), nullptr);
  EXPECT_EQ(requests_.Remove<CheckpointRequest>(kAny)->number, 7u);
  EXPECT_EQ(requests_.Find<CheckpointRequest>(kAny), nullptr);
  EXPECT_EQ(requests_.NextTimer(), never);
}

TEST_F(RepeatedRequestsTest, AJoinIsRepeatedWithTheSamePause) {
  requests_.Add(Join{});
  for (TimeUs now = 0; now < 10 * kResend; now += kResend) EXPECT_EQ(Send(now).size(), 1u);
}

TEST_F(RepeatedRequestsTest, BarriersLeasesAndTablesOfOneNameAreSentOneByOne) {
  const auto table = [](const char* name, std::uint32_t dim) {
    CreateTable request;
    request.spec.name = name;
    request.spec.dim = dim;
    return request;
  };
  requests_.Add(Barrier{1});
  requests_.Add(Barrier{2});
  requests_.Add(LeaseRequest{});
  requests_.Add(table("a", 1));
  requests_.Add(table("b", 1));
  requests_.Add(table("a", 2));
  const std::size_t barrier = IndexOf<Barrier>(), create = IndexOf<CreateTable>();
  EXPECT_EQ(Send(0), (std::vector<std::size_t>{barrier, IndexOf<LeaseRequest>(), create, create}));
  EXPECT_EQ(requests_.NextTimer(), kResend) << "a request that must wait is not due";
  EXPECT_EQ(requests_.Remove<Barrier>(kAny)->number, 1u);
  EXPECT_EQ(Send(0), std::vector<std::size_t>{barrier});
  EXPECT_EQ(requests_.Remove<CreateTable>(kAny)->spec.dim, 1u);
  EXPECT_EQ(Send(0), std::vector<std::size_t>{create});
}

TEST_F(RepeatedRequestsTest, ALeavingWorkerDoesNotWaitForCheckpoints) {
  requests_.Add(Leave{});
  requests_.Add(CheckpointRequest{1, ErrorCode::kOk, {}, {}});
  requests_.Add(CheckpointPart{});
  EXPECT_TRUE(requests_.idle());
  const std::uint64_t before = requests_.Hash(1);
  requests_.Add(Barrier{1});
  EXPECT_FALSE(requests_.idle());
  EXPECT_NE(requests_.Hash(1), before);
}

}  // namespace
}  // namespace tarn::worker
