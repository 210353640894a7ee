// SPDX-License-Identifier: Apache-2.0
// LEK-01 for sync objects in malloc's memory, and all the ways in which one that waits there is not
// leaked: somebody knows the block, by any of its bytes, from anywhere.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/leaking.h"
#include "support/leaks.h"
#include "support/runtime.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

// n goroutines that do `leaks` are found, for this reason. Once: what a run leaves lying about may
// hide the leaks of the next.
void expect_leaks(const std::string& reason, std::size_t n, void (*leaks)()) {
  if (cannot_find_leaks) GTEST_SKIP();
  goroutines_are_left_behind = true;
  weft::run(with_procs(1), [&] {
    apart(leaks);
    ASSERT_TRUE(eventually([n] {
      const debug::stats s = debug::runtime_stats();
      return s.waiting + s.leaked == n;
    }));
    const std::vector<debug::leak> found = all_leaks(n);
    EXPECT_EQ(found.size(), n) << reason;
    for (const debug::leak& l : found) EXPECT_EQ(l.reason, reason);
  });
}

TEST(Conformance, LEK_01_double_lock_on_the_heap) {
  expect_leaks("sync.Mutex.Lock", 1000, [] {
    for (int i = 0; i < 1000; ++i) {
      go([] {
        const auto m = std::make_unique<mutex>();
        m->lock();
        m->lock();
      });
    }
  });
}

TEST(Conformance, LEK_01_wait_group_on_the_heap) {
  expect_leaks("sync.WaitGroup.Wait", 10, [] {
    for (int i = 0; i < 10; ++i) {
      go([] {
        const auto wg = std::make_shared<wait_group>();
        wg->add(1);
        wg->wait();
      });
    }
  });
}

TEST(Conformance, LEK_01_cond_on_the_heap) {
  expect_leaks("sync.Cond.Wait", 10, [] {
    for (int i = 0; i < 10; ++i) {
      go([] {
        const auto m = std::make_unique<mutex>();
        const auto cv = std::make_unique<condition_variable>();
        std::unique_lock held(*m);
        cv->wait(held);
      });
    }
  });
}

TEST(Conformance, LEK_01_rwmutex_on_the_heap) {
  expect_leaks("sync.RWMutex.RLock", 10, [] {
    for (int i = 0; i < 10; ++i) {
      go([] {
        auto* m = new shared_mutex;
        m->lock();
        m->lock_shared();
      });
    }
  });
}

TEST(Conformance, LEK_01_semaphore_and_latch_on_the_heap) {
  expect_leaks("semacquire", 20, [] {
    for (int i = 0; i < 10; ++i) {
      go([] { std::make_unique<semaphore>(0)->acquire(); });
      go([] { std::make_unique<latch>(1)->wait(); });
    }
  });
}

TEST(Conformance, LEK_01_a_promise_that_is_not_kept) {
  expect_leaks("task wait", 10, [] {
    for (int i = 0; i < 10; ++i) {
      go([] {
        promise<int> p;
        (void)p.get_task().get();
      });
    }
  });
}

// Objects that know one another, and that nobody else knows.
TEST(Conformance, LEK_01_a_ring_of_objects) {
  struct node {
    std::array<char, 100> before{};
    mutex m;
    node* next = nullptr;
  };
  expect_leaks("sync.Mutex.Lock", 20, [] {
    std::array<node*, 20> all{};
    for (node*& n : all) n = new node;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i]->next = all[(i + 1) % all.size()];
      all[i]->m.lock();
    }
    for (node* n : all) go([n] { n->next->m.lock(); });
  });
}

// -- no false alarm

// What is waited for lies in the middle.
struct object {
  std::array<std::uintptr_t, 10> before{};
  mutex m;
  object* other = nullptr;
  std::array<std::uintptr_t, 10> behind{};

  void release() { m.unlock(); }
};

// Makes somebody wait for it.
[[gnu::noinline]] void hold(object* o) {
  apart([o] {
    o->m.lock();
    go([o] {
      o->m.lock();
      o->m.unlock();
    });
  });
}
// One that goes with him who waits for it.
[[gnu::noinline]] object* held() {
  auto* o = new object;
  apart([o] {
    o->m.lock();
    go([o] {
      o->m.lock();
      o->m.unlock();
      delete o;
    });
  });
  return o;
}

void expect_none(const char* where) {
  ASSERT_TRUE(eventually([] { return debug::runtime_stats().waiting >= 1; })) << where;
  wipe_stack();
  for (int i = 0; i < 3; ++i) {
    const auto found = debug::find_leaks();
    EXPECT_EQ(found.size(), 0U) << where << "\n" << found[0].trace;
  }
}

void await_end() {
  ASSERT_TRUE(eventually([] { return num_goroutines() == 1; }));
}

// hide() puts the only pointer away, find() gets it back.
template <class Hide, class Find>
void hides_in(const char* where, Hide hide, Find find) {
  apart([&] { hide(held()); });
  expect_none(where);
  find()->release();
  await_end();
}

object* global = nullptr;
void* volatile global_word = nullptr;
std::uintptr_t global_bits = 0;
alignas(8) char packed[16];
thread_local object* of_the_thread = nullptr;
std::unique_ptr<object*> in_a_block;

TEST(Conformance, LEK_no_false_alarm_object_known_by_a_pointer) {
  run_clean([] {
    lock_os_thread();
    hides_in(
        "global", [](object* o) { global = o; }, [] { return std::exchange(global, nullptr); });
    hides_in(
        "thread-local", [](object* o) { of_the_thread = o; },
        [] { return std::exchange(of_the_thread, nullptr); });
    hides_in(
        "another block", [](object* o) { in_a_block = std::make_unique<object*>(o); },
        [] { return *std::exchange(in_a_block, nullptr); });
    hides_in(
        "its last byte", [](object* o) { global_word = reinterpret_cast<char*>(o + 1) - 1; },
        [] { return reinterpret_cast<object*>(static_cast<char*>(global_word) + 1) - 1; });
    hides_in(
        "its end", [](object* o) { global_word = o + 1; },
        [] { return static_cast<object*>(global_word) - 1; });
    global_word = nullptr;
    unlock_os_thread();
  });
}

TEST(Conformance, LEK_no_false_alarm_object_known_by_a_tagged_pointer) {
  run_clean([] {
    const auto bits = [](object* o) { return reinterpret_cast<std::uintptr_t>(o); };
    const auto back = [](std::uintptr_t w) {
      global_bits = 0;
      return reinterpret_cast<object*>(w);
    };
    hides_in(
        "a tag in the low bits", [&](object* o) { global_bits = bits(o) | 7; },
        [&] { return back(global_bits & ~std::uintptr_t{7}); });
    hides_in(
        "a tag above", [&](object* o) { global_bits = bits(o) | 0xabcdULL << 48; },
        [&] { return back(global_bits & ~(0xffffULL << 48)); });
    hides_in(
        "a tag below", [&](object* o) { global_bits = bits(o) << 16 | 0x1234; },
        [&] { return back(global_bits >> 16); });
    hides_in(
        "a packed record", [&](object* o) { std::memcpy(packed + 4, &o, sizeof o); },
        [&] {
          object* o;
          std::memcpy(&o, packed + 4, sizeof o);
          std::memset(packed, 0, sizeof packed);
          return o;
        });
  });
}

// Each is waited for, and only the first is known.
TEST(Conformance, LEK_no_false_alarm_chain_of_objects) {
  run_clean([] {
    apart([] {
      for (int i = 0; i < 50; ++i) {
        object* o = held();
        o->other = global;
        global = o;
      }
    });
    ASSERT_TRUE(eventually([] { return debug::runtime_stats().waiting >= 50; }));
    expect_none("chain");
    while (global != nullptr) std::exchange(global, global->other)->release();
    await_end();
  });
}

// -- containers and memory of other kinds

std::map<int, object> nodes;
std::vector<object> array_of_them;
std::shared_ptr<object> shared;
std::function<void()> closure;
std::exception_ptr thrown;
local<object> of_the_goroutine;

struct alignas(256) aligned_object : object {};

TEST(Conformance, LEK_no_false_alarm_objects_in_containers) {
  run_clean([] {
    for (int i = 0; i < 20; ++i) hold(&nodes[i]);
    expect_none("map");
    for (auto& [i, o] : nodes) o.release();
    await_end();
    nodes.clear();

    array_of_them = std::vector<object>(7);
    hold(&array_of_them[3]);
    expect_none("vector");
    array_of_them[3].release();
    await_end();
    array_of_them = std::vector<object>();

    shared = std::make_shared<object>();
    hold(shared.get());
    expect_none("shared_ptr");
    shared->release();
    await_end();
    shared = nullptr;

    global_word = new aligned_object[3];
    hold(static_cast<aligned_object*>(global_word) + 1);
    expect_none("new[]");
    static_cast<aligned_object*>(global_word)[1].release();
    await_end();
    delete[] static_cast<aligned_object*>(global_word);
    global_word = nullptr;

    closure = [o = held()] { o->release(); };
    expect_none("std::function");
    closure();
    closure = nullptr;
    await_end();

    try {
      throw held();
    } catch (object*) {
      thrown = std::current_exception();
    }
    expect_none("exception");
    try {
      std::rethrow_exception(std::exchange(thrown, nullptr));
    } catch (object* o) {
      o->release();
    }
  });
}

TEST(Conformance, LEK_no_false_alarm_objects_in_pools) {
  run_clean([] {
    for (const std::size_t size :
         {std::size_t{4096}, std::size_t{12'000}, std::size_t{100'000}, std::size_t{1} << 20}) {
      global_word = std::malloc(size);
      const std::size_t at = size / 2 & ~std::size_t{63};
      hold(::new (static_cast<char*>(global_word) + at) object);
      expect_none("a part of a block");
      reinterpret_cast<object*>(static_cast<char*>(global_word) + at)->release();
      await_end();
      std::free(global_word);
    }
    constexpr std::size_t bytes = 1 << 20;
    global_word =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(global_word, MAP_FAILED);
    // Found by its place in the pool.
    hold(::new (static_cast<char*>(global_word) + bytes / 2) object);
    expect_none("mapping");
    reinterpret_cast<object*>(static_cast<char*>(global_word) + bytes / 2)->release();
    await_end();
    ::munmap(global_word, bytes);
    global_word = nullptr;
  });
}

// -- goroutines, threads, the kernel

void look(const char* where) {
  expect_none(where);
  looked = true;
  await_end();
  looked = false;
}
// Nobody but a timer knows it, most of the time.
struct known_by_a_timer {
  object* o;
  void operator()() const {
    if (looked) {
      o->release();
    } else {
      after_func(5ms, *this);
    }
  }
};

TEST(Conformance, LEK_no_false_alarm_objects_that_goroutines_know) {
  looked = false;
  run_clean(at_least_procs(2), [] {
    apart([] {
      go([] {
        object* o = held();
        sleep_until_looked();
        o->release();
      });
    });
    look("asleep");
    apart([] {
      go([o = held()] { o->release(); });
      EXPECT_EQ(debug::find_leaks().size(), 0U);
    });
    await_end();
    apart([] { after_func(5ms, known_by_a_timer{held()}); });
    look("a timer");
    apart([] {
      go([] {
        apart([] { hold(&*of_the_goroutine); });
        sleep_until_looked();
        of_the_goroutine->release();
        sleep_for(5ms);
      });
    });
    look("local");
    apart([] {
      go([] {
        try {
          throw held();
        } catch (...) {  // nothing but the exception knows it
          wipe_stack();
          sleep_until_looked();
          try {
            throw;
          } catch (object* o) {
            o->release();
          }
        }
      });
    });
    look("caught");
    apart([] {
      go([] {
        object* o = held();
        sleep_until_looked([] {  // whatever signals come
          blocking([] { std::this_thread::sleep_for(50ms); });
        });
        o->release();
      });
    });
    look("system call");
  });
}

// In a register, and nowhere else for most of the time.
TEST(Conformance, LEK_no_false_alarm_object_in_a_register) {
  run_clean(at_least_procs(2), [] {
    std::atomic<bool> stop{false};
    apart([&stop] {
      go([&stop] {
        object* o = held();
        wipe_stack();
        const auto until = steady::now() + 10s;
        for (std::uint64_t n = 0; !stop.load(std::memory_order_relaxed); ++n) {
          asm volatile("" : "+r"(o));
          if (n % 65536 == 0 && steady::now() > until) break;
        }
        o->release();
      });
    });
    expect_none("register");
    stop = true;
  });
}

TEST(Conformance, LEK_no_false_alarm_objects_that_threads_know) {
  looked = false;
  run_clean([] {
    const chan<void> turn;
    std::thread waits([turn] {
      object* o = held();
      (void)turn.recv();
      o->release();
    });
    expect_none("a thread that waits");
    turn.send();
    waits.join();
    await_end();
    std::thread sleeps([] {
      object* o = held();
      sleep_until_looked([] { ::usleep(5'000); });
      o->release();
    });
    look("a thread that sleeps");
    sleeps.join();
  });
}

TEST(Conformance, LEK_no_false_alarm_object_in_the_kernel) {
  run_clean([] {
    const int set = ::epoll_create1(EPOLL_CLOEXEC), bell = ::eventfd(1, EFD_CLOEXEC);
    apart([&] {
      epoll_event e{};
      e.events = EPOLLIN;
      e.data.ptr = held();
      EXPECT_EQ(::epoll_ctl(set, EPOLL_CTL_ADD, bell, &e), 0);
    });
    expect_none("epoll");
    epoll_event e{};
    ASSERT_EQ(::epoll_wait(set, &e, 1, 1000), 1);
    static_cast<object*>(e.data.ptr)->release();
    ::close(set);
    ::close(bell);
  });
}

// A stack that the program has made itself: only the one who stands on it knows where it is.
ucontext_t home, away;

void run_away() {
  std::memset(static_cast<void*>(&away), 0, sizeof away);
  object o;
  o.m.lock();
  go([&o] {
    o.m.lock();
    o.m.unlock();
  });
  while (!looked) yield();
  o.release();
  while (!o.m.try_lock()) yield();
  o.m.unlock();
  ::swapcontext(&away, &home);
}

TEST(Conformance, LEK_no_false_alarm_object_on_a_stack_in_the_heap) {
  if (sanitized) GTEST_SKIP() << "it would have to be told of the switch";
  run_clean(with_procs(1), [] {
    apart([] {
      go([] {
        apart([] {
          constexpr std::size_t bytes = 12'000;
          ::getcontext(&away);
          away.uc_stack.ss_sp = std::malloc(bytes);
          away.uc_stack.ss_size = bytes;
          away.uc_link = nullptr;
          ::makecontext(&away, run_away, 0);
          global_bits = ~reinterpret_cast<std::uintptr_t>(away.uc_stack.ss_sp);  // out of sight
        });
        ::swapcontext(&home, &away);
        std::free(reinterpret_cast<void*>(~std::exchange(global_bits, 0)));
      });
    });
    expect_none("a stack in the heap");
    looked = true;
  });
}

}  // namespace
}  // namespace weft::test
