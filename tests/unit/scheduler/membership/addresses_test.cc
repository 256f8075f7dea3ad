// Shows rule N8: the list of HTTP addresses is written before clock 0 opens, and again when a process replaces another;
// a failed write does not stop the run; a malformed address is refused.
#include "scheduler/membership/addresses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/limits.h"
#include "tests/unit/scheduler/fake_fleet.h"
#include "tests/unit/scheduler/memory_store.h"

namespace tarn::scheduler {
namespace {

using List = std::vector<ProcessAddress>;

TEST(CheckHttpAddress, TakesAHostAndAPort) {
  for (const char* text : {"http://127.0.0.1:7701", "http://node-7.rack_2:1", "http://[::1]:65535", "http://a:80"})
    EXPECT_TRUE(CheckHttpAddress(text)) << text;
}

TEST(CheckHttpAddress, RefusesOtherText) {
  for (const std::string text :
       {"", "http://", "http://:80", "http://a", "http://a:", "http://a:0", "http://a:65536", "http://a:-1",
        "http://a:8 ", "http://a:80/metrics", "https://a:80", "unix:/run/worker-0.http", "http://a b:80",
        "http://a\n:80", "http://a\":80", "http://u@a:80", "http://::1:80", "http://[]:80", "http://[a_b]:80"})
    EXPECT_FALSE(CheckHttpAddress(text)) << text;
}

class AddressesTest : public testing::Test {
 protected:
  // Ends the store's write.
  void EndWrite() {
    for (const StoreWritten& written : store_.TakeWritten()) addresses_.OnWritten(written);
  }

  MemoryStore store_;
  Addresses addresses_{&store_};
};

TEST_F(AddressesTest, AreWrittenByRoleAndRank) {
  addresses_.Put(Role::kWorker, 1, "http://d:4");
  addresses_.Put(Role::kWorker, 0, "http://c:3");
  addresses_.Put(Role::kShard, 0, "http://b:2");
  addresses_.Put(Role::kScheduler, 0, "http://a:1");
  EXPECT_FALSE(addresses_.Write());
  EndWrite();
  EXPECT_TRUE(addresses_.Write());
  EXPECT_EQ(store_.addresses, (List{{"scheduler", 0, "http://a:1"},
                                    {"server", 0, "http://b:2"},
                                    {"worker", 0, "http://c:3"},
                                    {"worker", 1, "http://d:4"}}));
}

TEST_F(AddressesTest, AFleetWithoutAddressesNeedsNoList) {
  addresses_.Put(Role::kScheduler, 0, "");
  EXPECT_TRUE(addresses_.Write());
  EXPECT_TRUE(store_.under_way.empty());
  Addresses nowhere(nullptr);
  nowhere.Put(Role::kScheduler, 0, "http://a:1");
  EXPECT_TRUE(nowhere.Write());
}

TEST_F(AddressesTest, ChangesDuringAWriteAreInTheNext) {
  addresses_.Put(Role::kWorker, 0, "http://a:1");
  EXPECT_FALSE(addresses_.Write());
  addresses_.Put(Role::kWorker, 0, "http://a:2");
  EXPECT_FALSE(addresses_.Write());
  EXPECT_EQ(store_.under_way.size(), 1u) << "one at a time";
  EndWrite();
  EXPECT_FALSE(addresses_.Write());
  EndWrite();
  EXPECT_TRUE(addresses_.Write());
  EXPECT_EQ(store_.addresses, (List{{"worker", 0, "http://a:2"}}));
}

TEST_F(AddressesTest, AProcessWithoutAnAddressIsRemovedFromTheList) {
  addresses_.Put(Role::kWorker, 0, "http://a:1");
  addresses_.Write();
  EndWrite();
  addresses_.Put(Role::kWorker, 0, "");
  EXPECT_FALSE(addresses_.Write());
  EndWrite();
  EXPECT_EQ(store_.addresses, List{});
}

TEST_F(AddressesTest, AFailedWriteIsNotRetriedBeforeTheListChanges) {
  store_.fail = true;
  addresses_.Put(Role::kWorker, 0, "http://a:1");
  addresses_.Write();
  EndWrite();
  EXPECT_TRUE(addresses_.Write());
  store_.fail = false;
  addresses_.Put(Role::kWorker, 1, "http://a:2");
  EXPECT_FALSE(addresses_.Write());
  EndWrite();
  EXPECT_EQ(store_.addresses.size(), 2u);
}

// A whole scheduler with one server of two shards, and two workers.
class AddressedFleet : public testing::Test {
 protected:
  AddressedFleet() {
    fleet_.http = [](Role role, std::uint32_t rank) {
      return role == Role::kShard ? "http://server:1" : "http://worker:" + std::to_string(1 + rank);
    };
    fleet_.on_send = [this](const Outgoing& sent) {
      welcomes_ += std::holds_alternative<Welcome>(sent.message.body) ? 1 : 0;
      if (const auto* shutdown = std::get_if<Shutdown>(&sent.message.body)) refusals_.push_back(*shutdown);
    };
  }
  bool Noted(const std::string& part) const {
    return std::ranges::any_of(fleet_.notes, [&](const std::string& note) { return note.contains(part); });
  }

  FakeFleet fleet_{SmallJob(2, 2)};
  int welcomes_ = 0;
  std::vector<Shutdown> refusals_;
};

TEST_F(AddressedFleet, NoNodeIsWelcomedBeforeTheListIsWritten) {
  fleet_.store.stalls = true;
  fleet_.AddAll();
  fleet_.Pass(4);
  EXPECT_EQ(welcomes_, 0);
  EXPECT_EQ(fleet_.scheduler.progress().phase, "waiting");
  fleet_.store.stalls = false;
  fleet_.Pass(1);
  EXPECT_GE(welcomes_, 4);
  EXPECT_EQ(fleet_.scheduler.progress().phase, "train");
  EXPECT_EQ(
      fleet_.store.addresses,
      (List{{"server", 0, "http://server:1"}, {"worker", 0, "http://worker:1"}, {"worker", 1, "http://worker:2"}}));
}

TEST_F(AddressedFleet, AReplacementWorkerReplacesTheEntryInTheList) {
  fleet_.rows[0] = 10000;
  fleet_.AddAll();
  fleet_.http = [](Role, std::uint32_t) { return "http://again:9"; };
  fleet_.AddWorker(1);
  EXPECT_EQ(fleet_.store.addresses.at(2), (ProcessAddress{"worker", 1, "http://again:9"}));
  EXPECT_EQ(fleet_.store.addresses.size(), 3u);
}

TEST_F(AddressedFleet, TrainsWithoutAListThatCannotBeWritten) {
  fleet_.store.fail = true;
  fleet_.rows[0] = 60;
  fleet_.AddAll();
  EXPECT_TRUE(Noted("addresses.json: No space left on device: the run continues without this list"));
  EXPECT_TRUE(fleet_.RunToEnd());
  EXPECT_EQ(fleet_.scheduler.progress().phase, "done");
}

TEST_F(AddressedFleet, ABadAddressIsRefused) {
  fleet_.http = [](Role, std::uint32_t) { return "ftp://elsewhere:1"; };
  fleet_.AddShard(0);
  fleet_.AddWorker(0);
  ASSERT_EQ(refusals_.size(), 2u);
  for (const Shutdown& refusal : refusals_) {
    EXPECT_EQ(refusal.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(refusal.reason, "HTTP address \"ftp://elsewhere:1\": expected http://HOST:PORT");
  }
  EXPECT_EQ(fleet_.scheduler.progress().shards_joined, 0u);
  EXPECT_TRUE(Noted("rejected a node: HTTP address"));
}

}  // namespace
}  // namespace tarn::scheduler
