// SPDX-License-Identifier: Apache-2.0
// LEK-05: the kinds of blocking bugs that real Go programs have had (the families of the GoKer
// collection), as C++ would have them. Each says how many goroutines it blocks for good and how
// many of those are found; never more.
//
// Found is what only the blocked ones can reach: channels by their handles, locks and their kin on
// the stack of a goroutine that is itself blocked, or in blocks of malloc's. Not found is what is
// known to another block, which the finder does not trace (the table says `in the heap`), and what
// a live goroutine still knows. Long because it is a table of 62 programs.
#include <algorithm>
#include <array>
#include <cctype>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>

#include "support/leaking.h"
#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

struct kind {
  const char* name;
  std::size_t blocked, found;
  void (*make)();
};

void ignore(std::optional<int>) {}

// Two that wait for one another, both with a lock: `first` then `second`, and the other way round.
template <class A, class B>
void cross(A& a, B& b) {
  wait_group wg;
  latch both(2);
  wg.go([&] {
    a.lock();
    both.arrive_and_wait();
    b.lock();
  });
  wg.go([&] {
    b.lock();
    both.arrive_and_wait();
    a.lock();
  });
  wg.wait();
}

// Two ways to make a lock of something else.
struct permit {
  void lock() { one.acquire(); }
  semaphore one{1};
};
struct token {
  void lock() { one.send(); }
  chan<void> one{1};
};

const kind kinds[] = {
    // -- channels alone
    {"nobody sends", 1, 1,
     [] {
       chan<int> c;
       go([c] { (void)c.recv(); });
     }},
    {"nobody receives", 1, 1,
     [] {
       chan<int> c;
       go([c] { c.send(1); });
     }},
    {"forgotten close", 2, 2,
     [] {
       chan<int> c(1);
       for (int i = 0; i < 2; ++i)
         go([c] {
           for (int v : c) (void)v;
         });
       c.send(1);
     }},
    {"one value for two", 1, 1,
     [] {
       chan<int> c;
       for (int i = 0; i < 2; ++i) go([c] { (void)c.recv(); });
       c.send(1);
     }},
    {"a buffer that is too small", 1, 1,
     [] {
       go([] {
         chan<int> errors(1);
         errors.send(1);
         errors.send(2);
       });
     }},
    {"first of three", 2, 2,
     [] {
       chan<int> c;
       for (int i = 0; i < 3; ++i) go([c, i] { c.send(i); });
       (void)c.recv();
     }},
    {"sender after a time-out", 1, 1,
     [] {
       static std::atomic<bool> gave_up{false};
       gave_up = false;
       chan<int> c;
       go([c] {
         while (!gave_up) sleep_for(1ms);
         c.send(1);
       });
       int v = 0;
       (void)c.recv_for(v, 1ms);
       gave_up = true;
     }},
    {"two channels in opposite order", 2, 2,
     [] {
       chan<int> a, b;
       go([a, b] {
         a.send(1);
         (void)b.recv();
       });
       go([a, b] {
         b.send(1);
         (void)a.recv();
       });
     }},
    {"a ring of three", 3, 3,
     [] {
       chan<int> a, b, c;
       go([a, b] {
         (void)a.recv();
         b.send(1);
       });
       go([b, c] {
         (void)b.recv();
         c.send(1);
       });
       go([c, a] {
         (void)c.recv();
         a.send(1);
       });
     }},
    {"a pipeline whose end has gone", 3, 3,
     [] {
       chan<int> a, b, c;
       go([a] {
         for (int i = 0;; ++i) a.send(i);
       });
       go([a, b] {
         for (int v : a) b.send(v);
       });
       go([b, c] {
         for (int v : b) c.send(v);
       });
       (void)c.recv();
     }},
    {"waits for its own answer", 1, 1,
     [] {
       go([] {
         chan<int> ask, answer;
         ask.send(1);
         (void)answer.recv();
       });
     }},
    {"a nil channel", 1, 1,
     [] {
       go([] {
         chan<int> never(nullptr);
         never.send(1);
       });
     }},
    {"a channel that travels in a channel", 2, 2,
     [] {
       chan<chan<int>> requests(1);
       go([requests] {
         chan<int> reply;
         requests.send(reply);
         (void)reply.recv();  // nobody serves
       });
       while (requests.len() == 0) yield();
       go([requests] { requests.send(chan<int>()); });
     }},
    {"an event loop that posts to itself", 1, 1,
     [] {
       chan<int> posts;
       go([posts] {
         for (int v : posts) posts.send(v + 1);
       });
       posts.send(1);
     }},
    {"a relay whose second runner has left", 2, 2,
     [] {
       chan<int> first, second;
       go([first] { first.send(1); });
       go([second] { (void)second.recv(); });
       go([first, second] {});
     }},
    {"a token that is lost on an early return", 1, 1,
     [] {
       chan<void> tokens(1);
       tokens.send();
       for (int i = 0; i < 2; ++i) {
         go([tokens, failed = true] {
           (void)tokens.recv();
           if (failed) return;
           tokens.send();
         });
       }
     }},
    // -- select
    {"select without the done case", 1, 1,
     [] {
       chan<int> in;
       chan<void> done;
       go([in] {
         for (;;) weft::select(weft::recv(in, ignore));
       });
       done.close();
     }},
    {"select whose both sides have gone", 1, 1,
     [] {
       chan<int> a, b;
       go([a, b] { weft::select(weft::recv(a, ignore), weft::send(b, 1)); });
     }},
    {"select over nil channels", 1, 1,
     [] { go([] { weft::select(weft::recv(chan<int>(nullptr), ignore)); }); }},
    {"no cases", 1, 1, [] { go([] { weft::select(); }); }},
    {"leaves a select early, the sender stays", 1, 1,
     [] {
       chan<int> results;
       chan<void> stop;
       go([results] { results.send(1); });
       stop.close();
       weft::select(weft::recv(stop));
     }},
    {"stop is sent twice", 1, 1,
     [] {
       chan<void> stop;
       go([stop] { (void)stop.recv(); });
       go([stop] {
         stop.send();
         stop.send();
       });
     }},
    {"a producer whose consumer was cancelled", 1, 1,
     [] {
       chan<int> values;
       chan<void> cancel;
       go([values] {
         for (int i = 0;; ++i) values.send(i);
       });
       go([values, cancel] {
         for (bool on = true; on;)
           weft::select(weft::recv(values, ignore), weft::recv(cancel, [&] { on = false; }));
       });
       cancel.close();
     }},
    {"a context that nobody cancels", 1, 0 /* its tree is in the heap */,
     [] {
       auto [ctx, cancel] = with_cancel(background());
       go([ctx = ctx] { (void)ctx.done().recv(); });
     }},
    {"a ticker that was stopped", 1, 0 /* in the heap */,
     [] {
       ticker t(1h);
       go([c = t.c] { (void)c.recv(); });
       t.stop();
     }},
    // -- locks
    {"double lock", 1, 1,
     [] {
       go([] {
         mutex m;
         m.lock();
         m.lock();
       });
     }},
    {"double lock in the heap", 1, 1,
     [] {
       go([] {
         auto m = std::make_unique<mutex>();
         m->lock();
         m->lock();
       });
     }},
    {"locks again in a callback", 1, 1,
     [] {
       go([] {
         mutex m;
         const auto callback = [&] { const std::lock_guard hold(m); };
         const std::lock_guard hold(m);
         callback();
       });
     }},
    {"is released on one branch only", 1, 1,
     [] {
       go([] {
         mutex m;
         for (int i = 0; i < 3; ++i) {
           m.lock();
           if (i == 0) m.unlock();
         }
       });
     }},
    {"a ring of three locks", 4, 4,
     [] {
       go([] {
         std::array<mutex, 3> locks;
         latch all(3);
         wait_group wg;
         for (std::size_t i = 0; i < 3; ++i) {
           wg.go([&, i] {
             locks[i].lock();
             all.arrive_and_wait();
             locks[(i + 1) % 3].lock();
           });
         }
         wg.wait();
       });
     }},
    {"AB-BA of a lock and a semaphore", 3, 3,
     [] {
       go([] {
         mutex a;
         permit b;
         cross(a, b);
       });
     }},
    {"AB-BA of a lock and a channel that is used as one", 3, 3,
     [] {
       go([] {
         mutex a;
         token b;
         cross(a, b);
       });
     }},
    {"AB-BA", 3, 3,
     [] {
       go([] {
         mutex a, b;
         cross(a, b);
       });
     }},
    {"AB-BA of reader-writer locks", 3, 3,
     [] {
       go([] {
         shared_mutex a, b;
         cross(a, b);
       });
     }},
    {"AB-BA of a lock and a reader-writer lock", 3, 3,
     [] {
       go([] {
         mutex a;
         shared_mutex b;
         cross(a, b);
       });
     }},
    {"AB-BA in the heap", 3, 3,
     [] {
       struct two {
         mutex a, b;
       };
       go([] {
         auto t = std::make_shared<two>();
         cross(t->a, t->b);
       });
     }},
    {"a lock that is not released on the way out", 2, 2,
     [] {
       go([] {
         mutex m;
         wait_group wg;
         wg.go([&] { m.lock(); });  // and returns
         wg.wait();
         wg.go([&] { m.lock(); });
         wg.wait();
       });
     }},
    {"a reader behind a writer behind the same reader", 2, 2,
     [] {
       go([] {
         shared_mutex m;
         m.lock_shared();
         wait_group wg;
         wg.go([&] { m.lock(); });
         while (m.try_lock_shared()) {
           m.unlock_shared();
           yield();
         }
         m.lock_shared();
       });
     }},
    {"a reader lock that is not released on the way out", 2, 2,
     [] {
       go([] {
         shared_mutex m;
         wait_group wg;
         wg.go([&] { m.lock_shared(); });  // and returns
         wg.wait();
         wg.go([&] { m.lock(); });
         wg.wait();
       });
     }},
    {"reader becomes writer", 1, 1,
     [] {
       go([] {
         shared_mutex m;
         m.lock_shared();
         m.lock();
       });
     }},
    {"writer becomes reader", 1, 1,
     [] {
       go([] {
         shared_mutex m;
         m.lock();
         m.lock_shared();
       });
     }},
    {"a semaphore that is asked for too much", 1, 1,
     [] {
       go([] {
         semaphore s(1);
         s.acquire(2);
       });
     }},
    {"a permit that is not given back", 2, 2,
     [] {
       go([] {
         semaphore s(1);
         wait_group wg;
         for (int i = 0; i < 2; ++i) wg.go([&] { s.acquire(); });
         wg.wait();
       });
     }},
    // -- conditions, groups
    {"lost signal", 1, 1,
     [] {
       go([] {
         mutex m;
         condition_variable cv;
         cv.notify_one();
         std::unique_lock hold(m);
         cv.wait(hold);
       });
     }},
    {"one signal for two", 2, 2,
     [] {
       go([] {
         mutex m;
         condition_variable cv;
         int in = 0;
         wait_group wg;
         for (int i = 0; i < 2; ++i) {
           wg.go([&] {
             std::unique_lock hold(m);
             ++in;
             cv.wait(hold);
           });
         }
         for (bool both = false; !both; yield()) {
           std::unique_lock hold(m);
           both = in == 2;
         }
         cv.notify_one();
         wg.wait();
       });
     }},
    {"everybody was told, and then one more came", 1, 1,
     [] {
       go([] {
         mutex m;
         condition_variable cv;
         bool in = false;
         wait_group wg;
         wg.go([&] {
           std::unique_lock hold(m);
           in = true;
           cv.wait(hold);
         });
         for (bool there = false; !there; yield()) {
           const std::lock_guard hold(m);
           there = in;
         }
         cv.notify_all();
         wg.wait();
         std::unique_lock hold(m);
         cv.wait(hold);
       });
     }},
    {"a condition that nobody makes true", 1, 1,
     [] {
       go([] {
         mutex m;
         condition_variable cv;
         wait_group wg;
         const bool is_true = false;
         wg.go([&] { cv.notify_all(); });
         std::unique_lock hold(m);
         cv.wait(hold, [&] { return is_true; });
       });
     }},
    {"a latch that is counted down once too few", 1, 1,
     [] {
       go([] {
         latch l(2);
         l.count_down();
         l.wait();
       });
     }},
    {"a member of a group that waits for the group", 2, 2,
     [] {
       go([] {
         wait_group wg;
         wg.go([&] { wg.wait(); });
         wg.wait();
       });
     }},
    {"waits for a group with the lock that its members need", 2, 2,
     [] {
       go([] {
         mutex m;
         wait_group wg;
         m.lock();
         wg.go([&] { const std::lock_guard hold(m); });
         wg.wait();
       });
     }},
    {"a missing done", 1, 1,
     [] {
       go([] {
         wait_group wg;
         wg.add(2);
         wg.done();
         wg.wait();
       });
     }},
    {"add in the loop, wait in the loop", 2, 2,
     [] {
       go([] {
         wait_group wg;
         latch never(1);
         for (int i = 0; i < 2; ++i) {
           wg.go([&] { never.wait(); });
           wg.wait();
         }
       });
     }},
    {"a barrier that one does not reach", 2, 2,
     [] {
       go([] {
         barrier<> b(3);
         wait_group wg;
         wg.go([&] { b.arrive_and_wait(); });
         wg.wait();
       });
     }},
    {"once inside once", 1, 1,
     [] {
       go([] {
         once o;
         o.call([&] { o.call([] {}); });
       });
     }},
    {"a scope inside a scope", 3, 3,
     [] {
       go([] {
         chan<int> c;
         scope outer;
         outer.go([c] {
           scope inner;
           inner.go([c] { (void)c.recv(); });
           inner.wait();
         });
         outer.wait();
       });
     }},
    {"a scope whose member waits for the scope", 2, 2,
     [] {
       go([] {
         chan<int> c;
         scope s;
         s.go([c] { (void)c.recv(); });
         s.wait();
       });
     }},
    // -- channels and locks
    {"sends under the lock that the receiver needs", 2, 2,
     [] {
       go([] {
         mutex m;
         chan<int> c;
         latch locked(1);
         wait_group wg;
         wg.go([&, c] {
           locked.wait();
           const std::lock_guard hold(m);
           (void)c.recv();
         });
         const std::lock_guard hold(m);
         locked.count_down();
         c.send(1);
         wg.wait();
       });
     }},
    {"receives under the lock that the sender needs", 2, 2,
     [] {
       go([] {
         mutex m;
         chan<int> c;
         const std::lock_guard hold(m);
         wait_group wg;
         wg.go([&, c] {
           const std::lock_guard too(m);
           c.send(1);
         });
         (void)c.recv();
       });
     }},
    {"a full buffer under a lock", 2, 2,
     [] {
       go([] {
         mutex m;
         chan<int> events(1);
         wait_group wg;
         const std::lock_guard hold(m);
         events.send(1);
         wg.go([&, events] {
           const std::lock_guard too(m);
           (void)events.recv();
         });
         events.send(2);
       });
     }},
    {"closes under a lock that a waiter holds", 2, 2,
     [] {
       go([] {
         mutex m;
         chan<void> stop;
         wait_group wg;
         latch locked(1);
         wg.go([&, stop] {
           const std::lock_guard hold(m);
           locked.count_down();
           (void)stop.recv();
         });
         locked.wait();
         const std::lock_guard hold(m);
         stop.close();
       });
     }},
    {"waits for a group whose member cannot send", 2, 2,
     [] {
       go([] {
         chan<int> results;
         wait_group wg;
         wg.go([results] { results.send(1); });
         wg.wait();
         (void)results.recv();
       });
     }},
    {"a reader lock over a receive, a writer before the sender", 3, 3,
     [] {
       go([] {
         shared_mutex m;
         chan<int> c;
         wait_group wg;
         m.lock_shared();
         wg.go([&] { m.lock(); });
         while (m.try_lock_shared()) {
           m.unlock_shared();
           yield();
         }
         wg.go([&, c] {
           m.lock_shared();
           c.send(1);
         });
         (void)c.recv();
       });
     }},
    // -- what is not blocked for good
    {"main still has the handle", 0, 0,
     [] {
       static chan<int> kept;
       go([] { (void)kept.recv(); });
     }},
};

bool at_rest() {
  const debug::stats s = debug::runtime_stats();
  return s.runnable == 0 && s.running == 1 && s.waiting + s.leaked + 1 == s.goroutines;
}

TEST(Conformance, LEK_05_sixty_two_kinds) {
  EXPECT_EQ(std::count_if(std::begin(kinds), std::end(kinds),
                          [](const kind& k) { return k.blocked != 0; }),
            62);
}

// Each in a process of its own, as ctest runs them: what the others left lying about could hide it.
class Kind : public ::testing::TestWithParam<kind> {};

TEST_P(Kind, OfRealProgramsIsFoundAsTheTableSays) {
  if (cannot_find_leaks) GTEST_SKIP();
  goroutines_are_left_behind = true;
  const kind& k = GetParam();
  weft::run(with_procs(2), [&] {
    apart(k.make);
    sleep_for(5ms);  // until the time-outs are over, as a rule
    EXPECT_TRUE(eventually([&k] {
      return at_rest() && (k.blocked == 0 || debug::runtime_stats().waiting == k.blocked);
    })) << debug::runtime_stats().waiting
        << " wait";
    const auto found = all_leaks(k.found);
    EXPECT_EQ(found.size(), k.found);
    for (const debug::leak& l : found) EXPECT_GT(l.goid, 1U) << l.trace;
  });
}

void PrintTo(const kind& k, std::ostream* to) { *to << k.name; }

INSTANTIATE_TEST_SUITE_P(LEK_05, Kind, ::testing::ValuesIn(kinds), [](const auto& i) {
  std::string name(i.param.name);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
});

}  // namespace
}  // namespace weft::test
