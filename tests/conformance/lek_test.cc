// SPDX-License-Identifier: Apache-2.0
// Leak detection, LEK-01, 04, 06, 07. The leaks of real programs (LEK-05) are in lek_kinds_test.cc.
//
// The finder takes a stale word for a pointer, so what leaks is made in functions of their own, and
// what they leave on the stack is wiped.
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/dumped.h"
#include "support/leaking.h"
#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

std::string profiled() {
  std::ostringstream out;
  debug::dump_leaks(out);
  return out.str();
}

// n goroutines that do `leaks`; each one is found, with its reason, in each of three runs.
void expect_leaks(const std::string& reason, std::size_t n, void (*leaks)()) {
  if (cannot_find_leaks) GTEST_SKIP();
  goroutines_are_left_behind = true;
  for (int i = 0; i < 3; ++i) {
    weft::run(with_procs(1), [&] {
      apart(leaks);
      for (int k = 0; k < 10; ++k) yield();
      ASSERT_TRUE(eventually([n] {
        const debug::stats s = debug::runtime_stats();
        return s.waiting + s.leaked == n;
      }));
      const std::vector<debug::leak> found = all_leaks(n);
      EXPECT_EQ(found.size(), n) << reason;
      for (const debug::leak& l : found) {
        EXPECT_EQ(l.reason, reason);
        EXPECT_NE(l.trace.find(" [" + reason + " (leaked)]:\n"), std::string::npos) << l.trace;
      }
      EXPECT_EQ(debug::runtime_stats().leaked, n);
      EXPECT_NE(dumped().find(" [" + reason + " (leaked)]:\n"), std::string::npos);
    });
  }
}

TEST(Conformance, LEK_01_nil_channels) {
  expect_leaks("chan receive (nil chan)", 1, [] { go([] { (void)chan<int>(nullptr).recv(); }); });
  expect_leaks("chan send (nil chan)", 1, [] { go([] { chan<int>(nullptr).send(1); }); });
}

TEST(Conformance, LEK_01_the_oldest_first) {
  if (cannot_find_leaks) GTEST_SKIP();
  goroutines_are_left_behind = true;
  weft::run([] {
    apart([] {
      for (int i = 0; i < 6; ++i) go([] { weft::select(); });
    });
    ASSERT_TRUE(eventually([] { return debug::runtime_stats().waiting == 6; }));
    const std::vector<debug::leak> found = all_leaks(6);
    EXPECT_EQ(found.size(), 6U);
    for (std::size_t i = 1; i < found.size(); ++i) EXPECT_LT(found[i - 1].goid, found[i].goid);
  });
}

TEST(Conformance, LEK_01_select) {
  expect_leaks("select (no cases)", 1, [] { go([] { weft::select(); }); });
  expect_leaks("select", 1, [] {
    go([] {
      chan<int> a, b;
      weft::select(weft::recv(a), weft::send(b, 1));
    });
  });
  expect_leaks("select", 1, [] {
    chan<int> a, b;
    go([a, b] { weft::select(weft::recv(a), weft::recv(b)); });
  });
}

TEST(Conformance, LEK_01_channels) {
  expect_leaks("chan receive", 1, [] {
    chan<int> c;
    go([c] { (void)c.recv(); });
  });
  expect_leaks("chan send", 1, [] {
    chan<int> c;
    go([c] { c.send(1); });
  });
}

TEST(Conformance, LEK_01_sync_objects) {
  expect_leaks("sync.WaitGroup.Wait", 1, [] {
    go([] {
      wait_group wg;
      wg.add(1);
      wg.wait();
    });
  });
  expect_leaks("sync.Cond.Wait", 1, [] {
    go([] {
      mutex m;
      condition_variable cv;
      std::unique_lock hold(m);
      cv.wait(hold);
    });
  });
  expect_leaks("sync.RWMutex.RLock", 1, [] {
    go([] {
      shared_mutex m;
      m.lock();
      m.lock_shared();
    });
  });
  expect_leaks("sync.RWMutex.Lock", 1, [] {
    go([] {
      shared_mutex m;
      m.lock();
      m.lock();
    });
  });
}

TEST(Conformance, LEK_01_double_lock_on_the_stack) {
  expect_leaks("sync.Mutex.Lock", 1000, [] {
    for (int i = 0; i < 1000; ++i) {
      go([] {
        mutex m;
        m.lock();
        m.lock();
      });
    }
  });
}

// -- no false alarm: each hides the only way to a goroutine that waits in a place of its own,
// looks, and goes that way

void expect_none(const char* where) {
  ASSERT_TRUE(eventually([] { return debug::runtime_stats().waiting >= 1; })) << where;
  const auto found = debug::find_leaks();
  EXPECT_EQ(found.size(), 0U) << where << "\n" << found[0].trace;
}

// And those who know what is waited for go on.
void look(const char* where) {
  expect_none(where);
  looked = true;
  ASSERT_TRUE(eventually([] { return num_goroutines() == 1; }));
  looked = false;
}

// Nobody but a timer knows it, most of the time.
struct known_by_a_timer {
  chan<int> c;
  void operator()() const {
    if (looked) {
      c.send(1);
    } else {
      after_func(5ms, *this);
    }
  }
};

[[gnu::noinline]] chan<int> waiting_receiver() {
  chan<int> c;
  go([c] { EXPECT_TRUE(c.recv().has_value()); });
  return c;
}

TEST(Conformance, LEK_no_false_alarm_memory) {
  run_clean([] {
    const chan<int> on_the_stack = waiting_receiver();
    expect_none("stack");
    on_the_stack.send(1);
    const auto in_the_heap = std::make_unique<chan<int>>(waiting_receiver());
    expect_none("heap");
    in_the_heap->send(1);
    static chan<int> global(nullptr);
    global = waiting_receiver();
    expect_none("global");
    global.send(1);
    static thread_local chan<int> of_the_thread(nullptr);
    lock_os_thread();
    of_the_thread = waiting_receiver();
    expect_none("thread-local");
    of_the_thread.send(1);
    of_the_thread = nullptr;
    unlock_os_thread();
    chan<chan<int>> in_a_channel(1);
    in_a_channel.send(waiting_receiver());
    expect_none("channel");
    in_a_channel.recv()->send(1);
  });
}

TEST(Conformance, LEK_no_false_alarm_goroutines) {
  run_clean(with_procs(1), [] {
    looked = false;
    go([c = waiting_receiver()] {
      sleep_until_looked();
      c.send(1);
    });
    look("sleeper");
    after_func(5ms, known_by_a_timer{waiting_receiver()});
    look("timer");
    go([c = waiting_receiver()] { c.send(1); });
    EXPECT_EQ(debug::find_leaks().size(), 0U);  // one that has not begun
    chan<int> c = waiting_receiver();
    std::array<char, 200> large{};
    go([c = std::move(c), large] { c.send(large[0]); });
    EXPECT_EQ(debug::find_leaks().size(), 0U);  // nor this one, whose closure is on its stack
    go([] {
      mutex m;
      m.lock();
      go([&m] {
        sleep_until_looked();
        m.unlock();
      });
      m.lock();
    });
    look("a lock that another may release");
    go([c = waiting_receiver()] {
      sleep_until_looked([] { blocking([] { ::usleep(30'000); }); });
      c.send(1);
    });
    look("system call");
  });
}

TEST(Conformance, LEK_no_false_alarm_threads) {
  run_clean([] {
    looked = false;
    std::thread sleeper([c = waiting_receiver()] {
      sleep_until_looked([] { ::usleep(5'000); });
      c.send(1);
    });
    look("a thread that sleeps");
    sleeper.join();
    const chan<void> turn;
    std::thread waiter([c = waiting_receiver(), turn] {
      (void)turn.recv();
      c.send(1);
    });
    expect_none("a thread that waits");
    turn.send();
    waiter.join();
  });
}

// The kernel has the only pointer: what is waited for lies on the stack of the one who waits.
TEST(Conformance, LEK_no_false_alarm_epoll) {
  run_clean([] {
    const int set = ::epoll_create1(EPOLL_CLOEXEC), bell = ::eventfd(1, EFD_CLOEXEC);
    apart([&] {
      go([set, bell] {
        wait_group wg;
        wg.add(1);
        epoll_event e{};
        e.events = EPOLLIN;
        e.data.ptr = &wg;
        EXPECT_EQ(::epoll_ctl(set, EPOLL_CTL_ADD, bell, &e), 0);
        std::memset(&e, 0, sizeof e);
        wg.wait();
      });
    });
    expect_none("epoll");
    epoll_event e{};
    ASSERT_EQ(::epoll_wait(set, &e, 1, 1000), 1);
    static_cast<wait_group*>(e.data.ptr)->done();
    ::close(set);
    ::close(bell);
  });
}

// -- our own threads know nobody while they are idle

[[gnu::noinline]] void leak_one() {
  apart([] {
    chan<int> c;
    go([c] { (void)c.recv(); });
  });
}

TEST(Conformance, LEK_01_beside_the_service_of_signals) {
  if (cannot_find_leaks) GTEST_SKIP();
  goroutines_are_left_behind = true;
  weft::run([] {
    const signals wanted({SIGUSR1});
    leak_one();
    EXPECT_EQ(all_leaks(1).size(), 1U);
  });
}

TEST(Conformance, LEK_01_beside_the_service_of_files) {
  if (cannot_find_leaks) GTEST_SKIP();
  goroutines_are_left_behind = true;
  weft::run([] {
    char path[] = "/tmp/weft-leak-XXXXXX";
    const file f = file::adopt(::mkstemp(path), "synced");
    ::unlink(path);
    f.sync();  // leaves a worker of the kernel behind
    leak_one();
    EXPECT_EQ(all_leaks(1).size(), 1U);
  });
}

// Nobody but the service can reach the one who waits for a signal.
TEST(Conformance, LEK_no_false_alarm_signals) {
  run_clean([] {
    apart([] {
      go([] {
        const signals s({SIGUSR1});
        EXPECT_EQ(s.c.recv(), SIGUSR1);
      });
      go([] {
        const auto [ctx, cancel] = with_signals(background(), {SIGUSR1});
        ctx.done().recv();
      });
    });
    ASSERT_TRUE(eventually([] { return debug::runtime_stats().waiting >= 2; }));
    expect_none("signals");
    ::kill(::getpid(), SIGUSR1);
  });
}

// -- LEK-04: how goroutines are leaked in the field

// A stack that the program has made of its own memory, smaller than what a thread's has: what lies
// below is the program's.
struct alignas(4096) own_memory {
  wait_group* only = nullptr;
  char rest[4096 - sizeof(wait_group*)] = {};
  char stack[48 * 1024] = {};
};
own_memory mine;
ucontext_t before_it, on_it;

TEST(Conformance, LEK_03_what_lies_below_a_small_stack_is_seen) {
  if (sanitized) GTEST_SKIP() << "knows nothing of stacks by makecontext";
  ASSERT_EQ(::getcontext(&on_it), 0);
  on_it.uc_stack.ss_sp = mine.stack;
  on_it.uc_stack.ss_size = sizeof mine.stack;
  on_it.uc_link = &before_it;
  ::makecontext(
      &on_it,
      [] {
        run_clean(with_procs(2), [] {
          go([] {
            wait_group wg;
            wg.add(1);
            mine.only = &wg;
            wipe_stack();
            wg.wait();
          });
          EXPECT_TRUE(eventually([] { return debug::runtime_stats().waiting == 1; }));
          EXPECT_EQ(debug::find_leaks().size(), 0U);
          mine.only->done();
          EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));
        });
      },
      0);
  ASSERT_EQ(::swapcontext(&before_it, &on_it), 0);
}

TEST(Conformance, LEK_04_a_range_that_nobody_closes) {
  expect_leaks("chan receive", 3, [] {
    chan<int> jobs;
    for (int i = 0; i < 3; ++i) {
      go([jobs] {
        for (int job : jobs) (void)job;
      });
    }
    for (int i = 0; i < 10; ++i) jobs.send(i);
  });
}

// A worker that must be stopped, and is not.
class worker {
 public:
  void start() {
    go([jobs = jobs_, stop = stop_] {
      for (bool over = false; !over;)
        weft::select(weft::recv(jobs, [](std::optional<int>) {}),
                     weft::recv(stop, [&] { over = true; }));
    });
  }
  void put(int job) { jobs_.send(job); }
  void stop() { stop_.close(); }

 private:
  chan<int> jobs_;
  chan<void> stop_;
};

TEST(Conformance, LEK_04_a_stop_that_was_forgotten) {
  expect_leaks("select", 1, [] {
    worker w;
    w.start();
    w.put(1);
  });
}

TEST(Conformance, LEK_04_a_second_send) {
  expect_leaks("chan send", 1, [] {
    chan<int> result;
    go([result] {
      const bool failed = result.cap() == 0;
      if (failed) result.send(-1);  // and no return
      result.send(1);
    });
    (void)result.recv();
  });
}

TEST(Conformance, LEK_04_an_early_return) {
  expect_leaks("chan send", 1, [] {
    chan<int> result;
    go([result] { result.send(1); });
    if (result.cap() == 0) return;
    (void)result.recv();
  });
}

TEST(Conformance, LEK_04_the_first_of_several) {
  expect_leaks("chan send", 4, [] {
    chan<int> result;
    for (int i = 0; i < 5; ++i) go([result, i] { result.send(i); });
    (void)result.recv();
  });
}

TEST(Conformance, LEK_04_a_cancelled_context) {
  expect_leaks("chan send", 100, [] {
    for (int i = 0; i < 100; ++i) {
      auto [ctx, cancel] = with_cancel(background());
      chan<int> result;
      go([result] { result.send(1); });
      cancel();
      weft::select(weft::recv(ctx.done()));
    }
  });
}

// -- LEK-06

void six_leaks() {
  go([] { (void)chan<int>(nullptr).recv(); });
  go([] { weft::select(); });
  chan<int> c;
  go([c] { (void)c.recv(); });
  chan<int> d;
  go([d] { d.send(1); });
  go([] {
    wait_group wg;
    wg.add(1);
    wg.wait();
  });
  go([] {
    mutex m;
    m.lock();
    m.lock();
  });
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(Conformance, LEK_06_leaks_stay_reported) {
  if (cannot_find_leaks) GTEST_SKIP();
  goroutines_are_left_behind = true;
  weft::run(at_least_procs(2), [] {
    apart(six_leaks);
    ASSERT_TRUE(eventually([] { return debug::runtime_stats().waiting == 6; }));
    // A word that somebody has left lying about may hide one for a while; found, they stay so.
    ASSERT_TRUE(eventually([] { return debug::find_leaks().size() == 6; }));
    const auto check = [] {
      const std::string text = profiled();
      EXPECT_TRUE(text.starts_with("goroutineleak profile: total 6\n1 @ 0x")) << text;
      EXPECT_NE(text.find("\n#\t0x"), std::string::npos) << text;
      EXPECT_NE(text.find("six_leaks"), std::string::npos) << text;
      EXPECT_EQ(count(dumped(), " (leaked)]:\n"), 6U);
    };
    for (int i = 0; i < 3; ++i) check();
    const auto until = steady::now() + std::chrono::milliseconds(by_effort(1000));
    wait_group both;
    for (int i = 0; i < 2; ++i) {
      both.go([&] {
        while (steady::now() < until && !::testing::Test::HasFailure()) check();
      });
    }
    both.wait();
    EXPECT_EQ(debug::audit(), 0);
  });
}

// -- LEK-07

void ask_in_a_tree(int depth, wait_group& all) {
  for (int i = 0; depth > 0 && i < depth; ++i)
    all.go([depth, &all] { ask_in_a_tree(depth - 1, all); });
  EXPECT_EQ(debug::find_leaks().size(), 0U);
}

TEST(Conformance, LEK_07_a_tree_of_goroutines_asks_at_once) {
  run_clean([] {
    wait_group all;
    ask_in_a_tree(effort() >= 1 ? full_or(5, 3) : 3, all);
    all.wait();
  });
}

}  // namespace
}  // namespace weft::test
