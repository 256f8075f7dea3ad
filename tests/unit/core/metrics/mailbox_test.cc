// Shows that the reader of a mailbox gets the newest value, that values which are not read are freed, and that neither
// side needs a lock.
#include "core/metrics/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace tarn {
namespace {

TEST(Mailbox, TheReaderGetsTheNewestValueAndKeepsIt) {
  Mailbox<int> mailbox;
  EXPECT_EQ(mailbox.Latest(), nullptr);
  mailbox.Put(std::make_unique<int>(1));
  mailbox.Put(std::make_unique<int>(2));
  const int* two = mailbox.Latest();
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(*two, 2);
  EXPECT_EQ(mailbox.Latest(), two);
  mailbox.Put(std::make_unique<int>(3));
  EXPECT_EQ(*two, 2) << "it is good until the next call";
  EXPECT_EQ(*mailbox.Latest(), 3);
}

struct Counted {
  explicit Counted(std::atomic<int>* the_count, int the_value) : count(the_count), value(the_value), copy(the_value) {
    ++*count;
  }
  ~Counted() { --*count; }
  std::atomic<int>* count;
  int value, copy;
};

TEST(Mailbox, EveryValueIsFreed) {
  std::atomic<int> alive = 0;
  {
    Mailbox<Counted> mailbox;
    for (int i = 0; i < 10; ++i) mailbox.Put(std::make_unique<Counted>(&alive, i));
    EXPECT_EQ(alive, 1);
    (void)mailbox.Latest();
    mailbox.Put(std::make_unique<Counted>(&alive, 10));
    EXPECT_EQ(alive, 2);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Mailbox, AWriterAndAReaderNeedNoLock) {
  constexpr int kValues = 20'000;
  std::atomic<int> alive = 0;
  Mailbox<Counted> mailbox;
  std::jthread writer([&] {
    for (int i = 1; i <= kValues; ++i) mailbox.Put(std::make_unique<Counted>(&alive, i));
  });
  for (int last = 0; last < kValues;) {
    const Counted* now = mailbox.Latest();
    if (now == nullptr) continue;
    ASSERT_GE(now->value, last) << "never an older one";
    ASSERT_EQ(now->value, now->copy);
    last = now->value;
  }
  writer.join();
  EXPECT_EQ(alive, 1);
}

}  // namespace
}  // namespace tarn
