// Shows that posted requests are taken in the order of their posts, that only the first of several is noted as such,
// and that nothing can be posted after the end.
#include "worker/runtime/posted_requests.h"

#include <gtest/gtest.h>

#include "worker/runtime/requests.h"

namespace tarn::worker {
namespace {

std::shared_ptr<Request> NewRequest() {
  return MakeStatusRequest([](Client*, Completion<>* done, TimeUs, Outbox*) { done->Done(); });
}

TEST(PostedRequests, AreTakenInOrder) {
  PostedRequests posted;
  EXPECT_TRUE(posted.Take().empty());
  const std::vector<std::shared_ptr<Request>> first{NewRequest()}, next{NewRequest(), NewRequest()};
  EXPECT_EQ(posted.Post(first).value(), true);
  EXPECT_EQ(posted.Post(next).value(), false);
  EXPECT_EQ(posted.Take(), (std::vector<std::shared_ptr<Request>>{first[0], next[0], next[1]}));
  EXPECT_TRUE(posted.Take().empty());
  EXPECT_EQ(posted.Post(next).value(), true);
}

TEST(PostedRequests, NothingIsPostedAfterTheEnd) {
  PostedRequests posted;
  const std::vector<std::shared_ptr<Request>> requests{NewRequest()};
  ASSERT_TRUE(posted.Post(requests));
  EXPECT_EQ(posted.End({ErrorCode::kIo, "out of memory"}), requests);
  EXPECT_TRUE(posted.End({ErrorCode::kCancelled, "later"}).empty());
  const auto refused = posted.Post(requests);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "out of memory");
  EXPECT_EQ(posted.error().code, ErrorCode::kIo);
  EXPECT_TRUE(posted.Take().empty());
}

}  // namespace
}  // namespace tarn::worker
