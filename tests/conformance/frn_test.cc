// SPDX-License-Identifier: Apache-2.0
// FRN: threads that are not ours call in. FRN-05 and FRN-12, and a call from an ELF destructor
// (FRN-11), are in tests/crash/frn_test.cc; FRN-07 is in ded_test.cc.
//
// Go lends such a thread an extra M, on which the callback is a goroutine. A plain thread of ours
// needs none: it makes the call itself and sleeps on a futex where a goroutine would park. So what
// Go says of the extra M is held here of that which takes its place: those who sleep inside weft
// (rt::blocked_threads), the values of weft::local, and the threads that we start. The callback is
// async(f).get().
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/m.h"
#include "os/thread.h"
#include "sched/sched.h"
#include "sched/waiter.h"
#include "support/allocations.h"
#include "support/dumped.h"
#include "support/runtime.h"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

// A pthread with a stack of this size, or of the usual one.
class pthread {
 public:
  explicit pthread(std::function<void()> f, std::size_t stack_size = 0)
      : f_(std::make_unique<std::function<void()>>(std::move(f))) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (stack_size != 0) pthread_attr_setstacksize(&attr, stack_size);
    const auto body = [](void* p) -> void* {
      (*static_cast<std::function<void()>*>(p))();
      return nullptr;
    };
    if (pthread_create(&t_, &attr, body, f_.get()) != 0) std::abort();
    pthread_attr_destroy(&attr);
  }
  pthread(pthread&&) = default;
  pthread& operator=(pthread&&) = delete;
  void join() {
    blocking([this] { pthread_join(t_, nullptr); });
  }

 private:
  std::unique_ptr<std::function<void()>> f_;
  pthread_t t_{};
};

std::uint32_t inside_weft() { return static_cast<std::uint32_t>(rt::blocked_threads.load()); }

void stop_the_world() { EXPECT_EQ(debug::audit(), 0); }

[[gnu::noinline]] int recurse(int n) {
  const volatile int here = n;
  return here == 0 ? 0 : 1 + recurse(here - 1);
}

// -- FRN-01

TEST(Conformance, FRN_01_callbacks_from_fresh_threads) {
  config c = config::from_env();
  c.stack_size = 4 * 1024 * 1024;  // for a recursion of 10 000 frames in any build
  run_clean(c, [] {
    EXPECT_EQ(inside_weft(), 0U);
    std::atomic<int> done{0};
    std::vector<pthread> threads;
    for (int i = 0; i < 100; ++i) {
      threads.emplace_back(
          [&] {
            EXPECT_EQ(goid(), 0U);
            async([&] {
              EXPECT_NE(goid(), 0U);
              // The one who called us sleeps by now, or will.
              EXPECT_TRUE(eventually([] { return inside_weft() > 0; }));
              stop_the_world();
              EXPECT_EQ(recurse(10'000), 10'000);
              stop_the_world();
            }).get();
            ++done;
          },
          256 * 1024);
    }
    for (pthread& t : threads) t.join();
    EXPECT_EQ(done, 100);
    EXPECT_EQ(inside_weft(), 0U);
  });
}

// A plain thread may stop the world itself.
TEST(Conformance, FRN_01_a_fresh_thread_stops_the_world) {
  run_clean([] {
    std::vector<pthread> threads;
    for (int i = 0; i < 20; ++i) {
      threads.emplace_back(
          [] {
            stop_the_world();
            EXPECT_EQ(recurse(100), 100);
            stop_the_world();
          },
          256 * 1024);
    }
    for (pthread& t : threads) t.join();
  });
}

// -- FRN-02

struct counted {
  static inline std::atomic<int> live{0};
  counted() { ++live; }
  counted(const counted&) { ++live; }
  counted& operator=(const counted&) = delete;
  ~counted() { --live; }
  int calls = 0;
};

// What a thread has is its own while it lives and goes with it, and we start none for it.
TEST(Conformance, FRN_02_short_lived_threads_leave_nothing) {
  run_clean([] {
    local<counted> mine;
    const chan<int> c(1);
    std::uint32_t started = 0;
    for (int i = 0; i < 100; ++i) {
      pthread([&] {
        EXPECT_EQ(mine->calls, 0);
        ++mine->calls;
        c.send(1);
        EXPECT_EQ(async([&] { return *c.recv(); }).get(), 1);
        EXPECT_EQ(mine->calls, 1);
      }).join();
      EXPECT_EQ(counted::live, 0);
      if (i == 9) started = rt::started_threads();
    }
    EXPECT_LT(rt::started_threads(), started + 10);  // nowhere near one for each
    EXPECT_EQ(inside_weft(), 0U);
  });
}

TEST(Conformance, FRN_02_long_lived_threads_keep_what_is_theirs) {
  run_clean([] {
    local<int> mine;
    std::vector<pthread> threads;
    for (int t = 1; t <= 2; ++t) {
      threads.emplace_back([&mine, t] {
        const int* const where = &*mine;
        for (int i = 0; i < 100; ++i) {
          *mine += t;
          async([&] { EXPECT_EQ(*mine, 0); }).get();  // the goroutine has its own
          EXPECT_EQ(&*mine, where);
          EXPECT_EQ(*mine, t * (i + 1));
        }
      });
    }
    for (pthread& t : threads) t.join();
  });
}

// -- FRN-03

[[gnu::noinline]] void the_callback(const chan<void>& go_on) {
  (void)go_on.recv();
  asm volatile("");  // so that the call before is no jump, and this frame is there
}

std::size_t blocks(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find("goroutine ", at)) != std::string::npos; ++at) {
    if ((at == 0 || text[at - 1] == '\n') && text.find("]:\n", at) != std::string::npos) ++n;
  }
  return n;
}

TEST(Conformance, FRN_03_a_callback_is_one_goroutine_more) {
  run_clean([] {
    const auto seen = [] {
      const std::string text = dumped();
      EXPECT_EQ(blocks(text), num_goroutines()) << text;
      return num_goroutines();
    };
    EXPECT_EQ(seen(), 1U);
    const chan<void> go_on;
    pthread t([&] { async([&] { the_callback(go_on); }).get(); });
    ASSERT_TRUE(eventually([] { return dumped().find("the_callback") != std::string::npos; }));
    EXPECT_EQ(seen(), 2U);
    go_on.close();
    t.join();
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));
    EXPECT_EQ(seen(), 1U);
  });
}

// -- FRN-06

// The signal by which we preempt, sent by somebody else to a thread that has never called in.
TEST(Conformance, FRN_06_a_preemption_signal_on_a_foreign_thread_is_nothing) {
  run_clean([] {
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> turns{0};
    std::atomic<pthread_t> id{};
    std::atomic<bool> there{false};
    pthread t([&] {
      id = pthread_self();
      there = true;
      while (!stop) ++turns;
    });
    ASSERT_TRUE(eventually([&] { return there.load(); }));
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(pthread_kill(id, SIGURG), 0);
    const std::uint64_t before = turns;
    EXPECT_TRUE(eventually([&] { return turns > before; }));
    stop = true;
    t.join();
  });
}

// 100 threads x 100 mallocs, while 10 threads send a signal that goroutines wait for.
TEST(Conformance, FRN_06_mallocs_under_a_storm_of_signals) {
  run_clean([] {
    signals s({SIGCHLD});
    std::atomic<bool> stop{false};
    std::vector<pthread> senders, workers;
    for (int i = 0; i < 10; ++i) {
      senders.emplace_back([&] {
        while (!stop) {
          ::kill(::getpid(), SIGCHLD);
          ::usleep(100);
        }
      });
    }
    std::atomic<int> made{0};
    for (int i = 0; i < 100; ++i) {
      workers.emplace_back(
          [&] {
            for (std::size_t k = 0; k < 100; ++k) {
              void* volatile p = std::malloc(64 + k * 97 % 4000);
              made += p != nullptr ? 1 : 0;
              std::free(p);
            }
          },
          256 * 1024);
    }
    for (pthread& t : workers) t.join();
    EXPECT_EQ(s.c.recv(), SIGCHLD);
    stop = true;
    for (pthread& t : senders) t.join();
    EXPECT_EQ(made, 10'000);
  });
}

// -- FRN-09

struct thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// C in the middle: glibc's qsort lets exceptions through, as anything built with -fexceptions does.
int compare(const void*, const void*) { throw thrown("from the callback"); }
void call_c() {
  int two[] = {2, 1};
  std::qsort(two, 2, sizeof two[0], compare);
}

// The scheduler's stack: its depth when a goroutine comes to it.
std::uintptr_t system_stack_depth() {
  return on_system_stack(
      [] { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); });
}

void throw_through(int times) {
  const os_thread_guard fixed;  // so that it is one thread's stack all the time
  const std::uintptr_t before = system_stack_depth();
  int caught = 0;
  for (int i = 0; i < times; ++i) {
    try {
      on_system_stack([] { call_c(); });
    } catch (const thrown& e) {
      caught += std::string_view(e.what()) == "from the callback" ? 1 : 0;
    }
  }
  EXPECT_EQ(caught, times);
  EXPECT_EQ(system_stack_depth(), before);
}

TEST(Conformance, FRN_09_an_exception_crosses_c_to_its_goroutine) {
  const int times = static_cast<int>(by_effort(static_cast<std::uint64_t>(scaled(100'000)), 1000));
  run_clean([times] { throw_through(times); });
}

TEST(Conformance, FRN_09_the_lock_count_is_what_it_was) {
  run_clean([] {
    const auto locks = [] { return rt::current_g()->locks; };
    for (const bool locked : {false, true}) {
      if (locked) lock_os_thread();
      const auto before = locks();
      EXPECT_EQ(before, locked ? 1U : 0U);
      for (int i = 0; i < 100; ++i) {
        EXPECT_THROW(on_system_stack([] { call_c(); }), thrown);
        EXPECT_THROW(
            {
              const os_thread_guard one_more;
              blocking(call_c);
            },
            thrown);
      }
      EXPECT_EQ(locks(), before);
      if (locked) unlock_os_thread();
    }
  });
}

// -- FRN-11

// A frame of 40 KB between calls at the usual depth.
template <std::size_t Frame>
[[gnu::noinline]] void call_at_depth(const chan<int>& c) {
  volatile char frame[Frame];
  frame[0] = 1;
  frame[Frame - 1] = 2;
  c.send(frame[0] + frame[Frame - 1]);
}

TEST(Conformance, FRN_11_shallow_deep_shallow) {
  run_clean([] {
    const chan<int> c;
    pthread t([&] {
      call_at_depth<64>(c);
      call_at_depth<40 * 1024>(c);
      call_at_depth<64>(c);
    });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(c.recv(), 3);
    t.join();
  });
}

TEST(Conformance, FRN_11_many_calls_in) {
  const int calls = static_cast<int>(by_effort(static_cast<std::uint64_t>(scaled(100'000)), 2000));
  run_clean([calls] {
    std::atomic<std::int64_t> grown{0};
    pthread t([&] {
      const auto call = [](int i) { return async([i] { return i + 1; }).get(); };
      for (int i = 0; i < 100; ++i) call(i);
      const std::int64_t before = live_allocations.objects;
      for (int i = 0; i < calls; ++i) ASSERT_EQ(call(i), i + 1);
      grown = live_allocations.objects - before;
    });
    t.join();
    EXPECT_LE(grown, 100);
  });
}

}  // namespace
}  // namespace weft::test
