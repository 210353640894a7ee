// SPDX-License-Identifier: Apache-2.0
// core/runq.h: the ring and runnext, through the owner's and the thief's view, with counters that
// wrap around, and with an owner and three thieves at work at once.
#include "core/runq.h"

#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/random.h"
#include "unit/support.h"

namespace weft::rt {
namespace {

// The queue never looks at its goroutines (but for prefetch), so addresses stand for them.
G* fake(std::uint64_t i) { return reinterpret_cast<G*>((i + 1) * 64); }
std::uint64_t number_of(const G* g) { return reinterpret_cast<std::uintptr_t>(g) / 64 - 1; }

template <class Q>
class Runq : public ::testing::Test {
 protected:
  static constexpr std::uint32_t capacity = Q::capacity;

  // Where the counters start: zero, and so that they wrap at every place in the ring.
  static std::vector<std::uint32_t> starts() {
    std::vector<std::uint32_t> s{0, 1, 0x7fffffffU, 0x80000000U};
    for (std::uint32_t back : {1U, 2U, 3U, capacity / 2, capacity - 1, capacity, capacity + 1})
      s.push_back(0U - back);
    return s;
  }
  void start_at(std::uint32_t n) {
    q.head = n;
    q.tail = n;
    other.head = 0U - n;  // somewhere else
    other.tail = 0U - n;
  }
  void fill(std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; ++i) ASSERT_TRUE(owner.put(fake(i)));
    ASSERT_EQ(q.size(), n);
  }

  Q q, other;
  runq_owner<Q> owner{q}, other_owner{other};
  runq_thief<Q> thief{q};
};

using Capacities = ::testing::Types<basic_runq<4>, basic_runq<256>>;
struct CapacityName {
  template <class Q>
  static std::string GetName(int) {
    return "Of" + std::to_string(Q::capacity);
  }
};
TYPED_TEST_SUITE(Runq, Capacities, CapacityName);

TYPED_TEST(Runq, StartsEmpty) {
  EXPECT_TRUE(this->q.empty());
  EXPECT_EQ(this->q.size(), 0U);
  EXPECT_EQ(this->owner.room(), this->capacity);
  EXPECT_EQ(this->owner.take(), nullptr);
  EXPECT_EQ(this->owner.take_next(), nullptr);
  EXPECT_EQ(this->thief.peek_next(), nullptr);
  EXPECT_EQ(this->thief.grab_into(this->other), 0U);
}

TYPED_TEST(Runq, FirstInFirstOutAtEveryLength) {  // RUN-01
  for (std::uint32_t start : this->starts()) {
    for (std::uint32_t n = 0; n <= this->capacity; ++n) {
      this->start_at(start);
      this->fill(n);
      EXPECT_EQ(this->owner.room(), this->capacity - n);
      EXPECT_EQ(this->q.empty(), n == 0);
      for (std::uint32_t i = 0; i < n; ++i)
        ASSERT_EQ(this->owner.take(), fake(i)) << "start " << start;
      ASSERT_EQ(this->owner.take(), nullptr);
      ASSERT_TRUE(this->q.empty());
    }
  }
}

TYPED_TEST(Runq, FullRingRefuses) {  // R1
  for (std::uint32_t start : this->starts()) {
    this->start_at(start);
    this->fill(this->capacity);
    EXPECT_FALSE(this->owner.put(fake(999)));
    EXPECT_EQ(this->q.size(), this->capacity);
    EXPECT_EQ(this->owner.take(), fake(0));
    EXPECT_TRUE(this->owner.put(fake(999)));
    EXPECT_FALSE(this->owner.put(fake(1000)));
    for (std::uint32_t i = 1; i < this->capacity; ++i) ASSERT_EQ(this->owner.take(), fake(i));
    EXPECT_EQ(this->owner.take(), fake(999));
    EXPECT_TRUE(this->q.empty());
  }
}

TYPED_TEST(Runq, PutsAndTakesRoundAndRound) {
  this->start_at(0U - 1000U);
  std::uint64_t in = 0, out = 0;
  random r(5);
  for (int i = 0; i < 20'000; ++i) {
    if (r.below(2) == 0) {
      if (this->owner.put(fake(in))) ++in;
    } else if (G* g = this->owner.take()) {
      ASSERT_EQ(number_of(g), out++);
    }
    ASSERT_EQ(this->q.size(), in - out);
  }
}

TYPED_TEST(Runq, TakeHalfOfAFullRingOnly) {  // R6
  constexpr std::uint32_t half = TypeParam::capacity / 2;
  for (std::uint32_t start : this->starts()) {
    this->start_at(start);
    G* out[half + 1] = {};
    this->fill(this->capacity - 2);
    EXPECT_EQ(this->owner.take_half(out), 0U);  // a thief made room: nothing is taken
    EXPECT_EQ(this->q.size(), this->capacity - 2);
    while (this->owner.take() != nullptr) {
    }
    this->fill(this->capacity);
    ASSERT_EQ(this->owner.take_half(out), half);
    for (std::uint32_t i = 0; i < half; ++i) EXPECT_EQ(out[i], fake(i));  // the oldest, in order
    EXPECT_EQ(out[half], nullptr);
    EXPECT_EQ(this->q.size(), half);
    EXPECT_EQ(this->owner.take(), fake(half));
  }
}

TYPED_TEST(Runq, TakeAllAndPutAll) {
  for (std::uint32_t start : this->starts()) {
    for (std::uint32_t n = 0; n <= this->capacity; ++n) {
      this->start_at(start);
      this->fill(n);
      G* out[TypeParam::capacity + 1] = {};
      ASSERT_EQ(this->owner.take_all(out), n);
      ASSERT_EQ(out[n], nullptr);
      for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(out[i], fake(i));
      ASSERT_TRUE(this->q.empty());
      this->owner.put_all(out, n);
      ASSERT_EQ(this->q.size(), n);
      for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(this->owner.take(), fake(i));
    }
  }
}

TYPED_TEST(Runq, GrabIntoTakesHalfAtEveryLength) {  // STL-01, R3
  for (std::uint32_t start : this->starts()) {
    for (std::uint32_t n = 0; n <= this->capacity; ++n) {
      this->start_at(start);
      this->fill(n);
      const std::uint32_t before = this->other.tail;
      const std::uint32_t got = this->thief.grab_into(this->other);
      ASSERT_EQ(got, n - n / 2);
      ASSERT_EQ(this->q.size(), n / 2);
      ASSERT_EQ(this->other.tail, before) << "grab_into must not publish";
      ASSERT_TRUE(this->other.empty());
      this->other.tail = before + got;  // what the caller does
      for (std::uint32_t i = 0; i < got; ++i) ASSERT_EQ(this->other_owner.take(), fake(i));
      for (std::uint32_t i = got; i < n; ++i) ASSERT_EQ(this->owner.take(), fake(i));
      ASSERT_TRUE(this->q.empty());
      ASSERT_TRUE(this->other.empty());
    }
  }
}

TYPED_TEST(Runq, RunnextIsOneSlotBesideTheRing) {  // R5
  EXPECT_EQ(this->owner.put_next(fake(1)), nullptr);
  EXPECT_FALSE(this->q.empty());
  EXPECT_EQ(this->q.size(), 0U);  // not counted as ring
  EXPECT_EQ(this->thief.peek_next(), fake(1));
  EXPECT_EQ(this->owner.put_next(fake(2)), fake(1));  // who was there comes back
  this->owner.settled();
  EXPECT_EQ(this->owner.take(), nullptr);
  EXPECT_EQ(this->owner.take_next(), fake(2));
  EXPECT_EQ(this->owner.take_next(), nullptr);
  EXPECT_TRUE(this->q.empty());
}

// Between runnext and the ring the displaced one is in neither. If the new runnext is stolen just
// then, an M that gives up must still see that there is somebody: nobody would wake it later.
TYPED_TEST(Runq, TheDisplacedOneIsNotLostToSight) {
  this->owner.put_next(fake(1));
  G* old = this->owner.put_next(fake(2));
  ASSERT_EQ(old, fake(1));
  ASSERT_TRUE(this->thief.take_next(fake(2)));
  EXPECT_FALSE(this->q.empty());
  ASSERT_TRUE(this->owner.put(old));
  this->owner.settled();
  EXPECT_FALSE(this->q.empty());
  EXPECT_EQ(this->owner.take(), fake(1));
  EXPECT_TRUE(this->q.empty());
}

TYPED_TEST(Runq, ThiefTakesOnlyTheRunnextItSaw) {
  this->owner.put_next(fake(1));
  G* seen = this->thief.peek_next();
  this->owner.put_next(fake(2));
  EXPECT_FALSE(this->thief.take_next(seen));
  EXPECT_EQ(this->thief.peek_next(), fake(2));
  EXPECT_TRUE(this->thief.take_next(fake(2)));
  EXPECT_FALSE(this->thief.take_next(fake(2)));
  EXPECT_EQ(this->owner.take_next(), nullptr);
}

TYPED_TEST(Runq, PrefetchTouchesNothing) {
  const auto gs = std::make_unique<G[]>(4);
  this->owner.prefetch();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(this->owner.put(&gs[static_cast<std::size_t>(i)]));
    this->owner.prefetch();  // also with null and stale stack pointers
  }
  EXPECT_EQ(this->q.size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(this->owner.take(), &gs[static_cast<std::size_t>(i)]);
}

// RUN-02: the owner has at least one goroutine at any time, in the ring or in runnext, and moves it
// between the two as the end of a slice does; nobody may ever see the queue empty.
TYPED_TEST(Runq, NeverSeenEmptyWhileItIsNot) {
  std::atomic<bool> stop{false};
  std::atomic<int> seen_empty{0};
  ASSERT_TRUE(this->owner.put(fake(0)));
  std::thread looker([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      if (this->q.empty()) ++seen_empty;
    }
  });
  for (int i = 0; i < unit_test::scaled(300'000); ++i) {
    // ring -> runnext of a second one, then the first leaves; runnext -> ring.
    ASSERT_EQ(this->owner.put_next(fake(1)), nullptr);
    ASSERT_EQ(this->owner.take(), fake(0));
    G* old = this->owner.put_next(fake(0));  // displaces, the displaced one goes to the ring
    ASSERT_TRUE(this->owner.put(old));
    this->owner.settled();
    ASSERT_EQ(this->owner.take_next(), fake(0));
    ASSERT_TRUE(this->owner.put(fake(0)));
    ASSERT_EQ(this->owner.take(), fake(1));
  }
  stop = true;
  looker.join();
  EXPECT_EQ(seen_empty, 0);
}

// Exactly once: an owner that puts, overflows, takes and uses runnext, and three thieves that steal
// from it and from one another. Every number comes out once, at one place.
template <class Q>
class exactly_once {
 public:
  explicit exactly_once(std::uint32_t items) : seen_(items) {
    for (auto& q : queues_) {
      q.head = 0U - 5000U;  // wraps on the way
      q.tail = 0U - 5000U;
    }
  }

  void run() {
    std::vector<std::thread> ts;
    for (std::size_t i = 1; i < std::size(queues_); ++i) ts.emplace_back([this, i] { thief(i); });
    while (started_.load() < ts.size()) std::this_thread::yield();
    owner();
    for (auto& t : ts) t.join();
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      ASSERT_EQ(seen_[i].load(), 1) << "item " << i << " of " << seen_.size();
    }
    for (auto& q : queues_) EXPECT_TRUE(q.empty());
    EXPECT_GT(stolen_, 0U) << "the thieves had nothing to do: the test tests nothing";
  }

 private:
  void deliver(G* g) {
    seen_[number_of(g)].fetch_add(1, std::memory_order_relaxed);
    delivered_.fetch_add(1, std::memory_order_relaxed);
  }
  void put(runq_owner<Q>& o, G* g) {  // as put_local
    while (!o.put(g)) {
      G* batch[Q::capacity / 2];
      const std::uint32_t n = o.take_half(batch);
      if (n == 0) continue;
      for (std::uint32_t i = 0; i < n; ++i) deliver(batch[i]);
      deliver(g);
      return;
    }
  }
  void owner() {
    runq_owner<Q> o(queues_[0]);
    random r(1);
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      G* g = fake(i);
      if (r.below(3) == 0) {
        g = o.put_next(g);
        if (g != nullptr) put(o, g);
        o.settled();
      } else {
        put(o, g);
      }
      if (r.below(4) == 0) {
        if (G* t = r.below(2) == 0 ? o.take() : o.take_next()) deliver(t);
      }
      // Now and then the thieves must have come before we go on.
      const std::uint64_t before = stolen_;
      while (i % 4096 == 4095 && stolen_ == before && queues_[0].size() > 1)
        std::this_thread::yield();
    }
    while (G* g = o.take_next()) deliver(g);
    while (delivered_.load(std::memory_order_relaxed) < seen_.size()) {
      if (G* g = o.take()) deliver(g);
      std::this_thread::yield();
    }
  }
  void thief(std::size_t self) {
    runq_owner<Q> own(queues_[self]);
    random r(self * 77);
    ++started_;
    while (delivered_.load(std::memory_order_relaxed) < seen_.size()) {
      std::size_t from = r.below(static_cast<std::uint32_t>(std::size(queues_)));
      if (from == self) from = 0;
      runq_thief<Q> victim(queues_[from]);
      if (const std::uint32_t n = victim.grab_into(queues_[self])) {  // as steal_from
        const std::uint32_t t = queues_[self].tail.load(std::memory_order_relaxed);
        G* last = queues_[self].slots[(t + n - 1) % Q::capacity].load(std::memory_order_relaxed);
        queues_[self].tail.store(t + n - 1, std::memory_order_release);
        deliver(last);
        stolen_.fetch_add(n, std::memory_order_relaxed);
      } else if (G* g = victim.peek_next()) {
        if (victim.take_next(g)) deliver(g);
      }
      for (std::uint32_t i = r.below(Q::capacity); i > 0;
           --i) {  // sometimes leaves some for other thieves
        if (G* g = own.take()) deliver(g);
      }
      // grab_into needs room for half a ring, as find_work steals only with an empty one.
      while (queues_[self].size() > 0) {
        if (G* g = own.take()) deliver(g);
      }
    }
  }

  Q queues_[4];
  std::vector<std::atomic<int>> seen_;
  std::atomic<std::size_t> delivered_{0}, started_{0};
  std::atomic<std::uint64_t> stolen_{0};
};

TYPED_TEST(Runq, OwnerAndThreeThievesDeliverExactlyOnce) {
  for (int round = 0; round < 4; ++round) {
    const auto x = std::make_unique<exactly_once<TypeParam>>(unit_test::scaled(200'000));
    x->run();
  }
}

}  // namespace
}  // namespace weft::rt
