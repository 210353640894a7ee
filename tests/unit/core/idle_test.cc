// SPDX-License-Identifier: Apache-2.0
// core/idle.h: every transition of the idle word as a table, and a crowd of threads that go through
// the wake protocol while each keeps its own books.
#include "core/idle.h"

#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <mutex>
#include <ostream>
#include <thread>
#include <vector>

#include "base/random.h"
#include "unit/support.h"

namespace weft::rt {

std::ostream& operator<<(std::ostream& os, const idle_counts& c) {
  return os << "{idle " << c.idle_ps << ", spinning " << c.spinning << (c.need ? ", need}" : "}");
}

namespace {

TEST(IdleWord, PacksAndUnpacks) {
  for (std::uint32_t idle : {0U, 1U, 1024U, 0xffffffU}) {
    for (std::uint32_t spinning : {0U, 1U, 1024U, 0xffffffU}) {
      for (bool need : {false, true}) {
        const idle_counts c{idle, spinning, need};
        EXPECT_EQ(idle_word::unpack(idle_word::pack(c)), c);
      }
    }
  }
  static_assert(idle_word::pack({}) == 0);
  static_assert(idle_word::unpack(idle_word::pack({3, 2, true})) == idle_counts{3, 2, true});
}

// Brings a word into a state by its own transitions.
void bring(idle_word& w, idle_counts c) {
  ASSERT_EQ(w.load(), idle_counts{});
  for (std::uint32_t i = 0; i < c.spinning; ++i) {
    w.put_p();
    w.take_p(true);
  }
  for (std::uint32_t i = 0; i < c.idle_ps; ++i) w.put_p();
  if (c.need) w.leave_note();
  ASSERT_EQ(w.load(), c);
  ASSERT_EQ(w.peek(), c);
}

template <class Op>
void expect_step(idle_counts before, Op op, bool result, idle_counts after, const char* name) {
  idle_word w;
  bring(w, before);
  EXPECT_EQ(op(w), result) << name << " from " << before;
  EXPECT_EQ(w.load(), after) << name << " from " << before;
}

TEST(IdleWord, ClaimSpinner) {
  struct row {
    idle_counts before;
    bool start;
    idle_counts after;
  };
  const row rows[] = {
      {{0, 0, false}, false, {0, 0, true}},  // nobody idle: the note
      {{0, 0, true}, false, {0, 0, true}},   // lies there already
      {{1, 0, false}, true, {1, 1, false}},  // the caller is the one
      {{1, 0, true}, true, {1, 1, true}},    // a P became idle since the note was written
      {{7, 0, false}, true, {7, 1, false}},
      {{0, 1, false}, false, {0, 1, false}},  // somebody looks
      {{0, 1, true}, false, {0, 1, true}},
      {{5, 1, false}, false, {5, 1, false}},
      {{5, 3, true}, false, {5, 3, true}},
  };
  for (const row& r : rows) {
    expect_step(
        r.before, [](idle_word& w) { return w.claim_spinner() == idle_word::wake_result::start; },
        r.start, r.after, "claim_spinner");
  }
}

TEST(IdleWord, GiveUpP) {
  struct row {
    idle_counts before;
    bool spinning;
    bool gone;
    idle_counts after;
  };
  const row rows[] = {
      {{0, 0, false}, false, true, {1, 0, false}},
      {{3, 0, false}, false, true, {4, 0, false}},
      {{0, 0, true}, false, false, {0, 1, false}},  // takes the note, keeps its P, spins
      {{2, 1, true}, false, false, {2, 2, false}},
      {{0, 1, false}, true, true, {1, 0, false}},
      {{0, 1, true}, true, true, {1, 0, true}},  // a spinner has its second look; the note is for
                                                 // others
      {{4, 2, true}, true, true, {5, 1, true}},
  };
  for (const row& r : rows) {
    expect_step(
        r.before, [&](idle_word& w) { return w.give_up_p(r.spinning); }, r.gone, r.after,
        r.spinning ? "give_up_p(spinning)" : "give_up_p");
  }
}

TEST(IdleWord, TryStartSpinning) {  // M7: 2 * spinning < procs - idle
  for (std::uint32_t procs = 1; procs <= 9; ++procs) {
    for (std::uint32_t idle = 0; idle < procs; ++idle) {
      for (std::uint32_t spinning = 0; spinning <= procs - idle; ++spinning) {
        const bool may = 2 * spinning < procs - idle;
        expect_step(
            {idle, spinning, false}, [&](idle_word& w) { return w.try_start_spinning(procs); }, may,
            {idle, spinning + (may ? 1 : 0), false}, "try_start_spinning");
      }
    }
  }
}

TEST(IdleWord, TheSimpleSteps) {
  const auto step = [](idle_counts before, auto op, idle_counts after, const char* name) {
    expect_step(
        before,
        [&](idle_word& w) {
          op(w);
          return true;
        },
        true, after, name);
  };
  step(
      {0, 1, false}, [](idle_word& w) { w.unclaim_spinner(); }, {0, 0, true}, "unclaim_spinner");
  step(
      {2, 3, true}, [](idle_word& w) { w.unclaim_spinner(); }, {2, 2, true}, "unclaim_spinner");
  step(
      {2, 3, true}, [](idle_word& w) { w.stop_spinning(); }, {2, 2, true}, "stop_spinning");
  step(
      {0, 1, false}, [](idle_word& w) { w.stop_spinning(); }, {0, 0, false}, "stop_spinning");
  step(
      {2, 0, true}, [](idle_word& w) { w.take_p(false); }, {1, 0, true}, "take_p");
  step(
      {2, 0, false}, [](idle_word& w) { w.take_p(true); }, {1, 1, false}, "take_p(spin)");
  step(
      {2, 1, true}, [](idle_word& w) { w.put_p(); }, {3, 1, true}, "put_p");
  step(
      {2, 1, false}, [](idle_word& w) { w.leave_note(); }, {2, 1, true}, "leave_note");
  step(
      {2, 1, true}, [](idle_word& w) { w.leave_note(); }, {2, 1, true}, "leave_note");
  step(
      {0, 1, true}, [](idle_word& w) { w.forget_note(); }, {0, 1, false}, "forget_note");
}

// Threads take the part of Ms. The idle list is a number under a lock, as the real one; what each
// thread has (a P, the right to spin) is in its own variables. While all run the word must stay
// within its bounds, and when they have stopped it must say exactly what their books say.
struct crowd {
  static constexpr std::uint32_t procs = 4;
  idle_word word;
  std::mutex lock;
  std::uint32_t idle_list = 0;  // under lock

  struct m {
    bool has_p = false;
    bool spinning = false;
  };

  void wake(m& self) {  // as wake_slow: the P it finds goes to the caller if it has none, else to
                        // nobody in particular
    if (word.claim_spinner() != idle_word::wake_result::start) return;
    std::lock_guard hold(lock);
    if (idle_list == 0) {
      word.unclaim_spinner();
      return;
    }
    --idle_list;
    word.take_p(false);
    if (!self.has_p) {
      self.has_p = true;
      self.spinning = true;
      return;
    }
    // The thread that was to spin found nothing.
    ++idle_list;
    word.give_up_p(true);
  }
  void give_up(m& self) {
    std::lock_guard hold(lock);
    if (word.give_up_p(self.spinning)) {
      self = {false, false};
      ++idle_list;
    } else {
      self.spinning = true;
    }
  }
  void take(m& self, bool spin) {
    std::lock_guard hold(lock);
    if (idle_list == 0) {
      word.leave_note();
      return;
    }
    --idle_list;
    word.take_p(spin);
    self = {true, spin};
  }
  void step(m& self, random& r) {
    switch (r.below(4)) {
      case 0:
        wake(self);
        break;
      case 1:
        if (self.has_p) {
          give_up(self);
        } else {
          take(self, r.below(2) == 0);
        }
        break;
      case 2:
        if (self.has_p && !self.spinning && word.try_start_spinning(procs)) self.spinning = true;
        break;
      case 3:
        if (self.spinning) {
          word.stop_spinning();
          self.spinning = false;
          wake(self);
        }
        break;
    }
  }
};

TEST(IdleWord, ACrowdKeepsTheSums) {
  constexpr int threads = 6;
  crowd c;
  {
    std::lock_guard hold(c.lock);
    c.idle_list = crowd::procs;
    for (std::uint32_t i = 0; i < crowd::procs; ++i) c.word.put_p();
  }
  std::vector<crowd::m> ms(threads);
  std::vector<std::thread> ts;
  std::atomic<int> out_of_bounds{0};
  for (int t = 0; t < threads; ++t) {
    ts.emplace_back([&, t] {
      random r(static_cast<std::uint64_t>(t) + 1);
      for (int i = 0; i < unit_test::scaled(200'000); ++i) {
        c.step(ms[static_cast<std::size_t>(t)], r);
        const idle_counts now = c.word.load();
        if (now.idle_ps > crowd::procs || now.spinning > threads) ++out_of_bounds;
      }
    });
  }
  for (auto& t : ts) t.join();
  EXPECT_EQ(out_of_bounds, 0);
  std::uint32_t held = 0, spinning = 0;
  for (const auto& m : ms) {
    held += m.has_p ? 1 : 0;
    spinning += m.spinning ? 1 : 0;
    EXPECT_TRUE(m.has_p || !m.spinning);  // M2
  }
  EXPECT_EQ(c.idle_list + held, crowd::procs);
  EXPECT_EQ(c.word.load().idle_ps, c.idle_list);
  EXPECT_EQ(c.word.load().spinning, spinning);
}

// The promise the word is there for: never work, an idle P, and nobody who looks. A producer puts
// work into a flag and wakes while a worker gives up, in the two ways an M can: as a spinner, who
// changes the word and looks again; and without spinning, relying on the note.
TEST(IdleWord, NoWorkIsForgotten) {
  constexpr std::uint32_t procs = 2;
  for (int round = 0; round < unit_test::scaled(4'000); ++round) {
    const bool spins = round % 2 == 0;
    idle_word word;
    std::atomic<int> work{0}, ready{0};
    bool started = false, gone = false;
    if (spins) {
      word.put_p();
      ASSERT_TRUE(word.try_start_spinning(procs));
    }
    const auto meet = [&ready] {
      ++ready;
      for (int i = 0; ready.load() < 2; ++i) {
        if (i > 1000) std::this_thread::yield();
      }
    };
    std::thread producer([&] {
      meet();
      // As fence_and_wake does. A seq_cst store would do for a machine, but not for qemu 7.2: it
      // makes of stlr and ldar a plain store and load, which an x86 host may do the other way
      // round.
      work.store(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      started = word.claim_spinner() == idle_word::wake_result::start;
    });
    meet();
    gone = word.give_up_p(spins);
    if (spins) {
      ASSERT_TRUE(gone);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      gone = work.load(std::memory_order_relaxed) == 0;
    }
    producer.join();
    ASSERT_TRUE(started || !gone) << "round " << round << (spins ? ", spinning" : ", by the note");
  }
}

}  // namespace
}  // namespace weft::rt
