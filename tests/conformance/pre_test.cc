// SPDX-License-Identifier: Apache-2.0
// PRE: preemption. What is stopped here has no call of weft in it.
#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "sched/procs.h"
#include "sched/sched.h"
#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/sync.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

__attribute__((noinline)) void small_function() { asm volatile(""); }

// -- PRE-01

TEST(Conformance, PRE_01_two_spinners_alternate) {
  for (int procs : {1, 2, 3}) {
    SCOPED_TRACE(procs);
    run_clean(with_procs(procs), [] {
      constexpr int turns = 5;
      std::atomic<int> x{0};
      chan<void> done;
      go([&] {
        for (int i = 0; i < turns; ++i) {
          while (x.load(std::memory_order_relaxed) != 2 * i + 1) small_function();
          x.store(2 * i + 2);
        }
        done.close();
      });
      for (int i = 0; i < turns; ++i) {
        x.store(2 * i + 1);
        while (x.load(std::memory_order_relaxed) != 2 * i + 2) small_function();
      }
      done.recv();
      EXPECT_EQ(x.load(), 2 * turns);
    });
  }
}

TEST(Conformance, PRE_01_spinners_do_not_hold_up_a_stop) {
  run_clean(with_procs(6), [] {
    std::atomic<int> started{0};
    std::atomic<bool> stop{false};
    scope s;
    for (int i = 0; i < 5; ++i) {
      s.go([&] {
        started.fetch_add(1);
        while (!stop.load(std::memory_order_relaxed)) small_function();
      });
    }
    ASSERT_TRUE(eventually([&] { return started.load() == 5; }));
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(debug::audit(), 0);
      yield();
    }
    stop.store(true);
    s.wait();
  });
}

// -- PRE-02: at one P, three kinds of loops without any call of weft

TEST(Conformance, PRE_02_loops_without_calls_are_stopped) {
  run_clean(with_procs(1), [] {
    std::atomic<bool> stop{false};
    std::atomic<int> started{0};
    scope s;
    s.go([&] {
      started.fetch_add(1);
      while (!stop.load(std::memory_order_relaxed)) small_function();
    });
    s.go([&] {
      started.fetch_add(1);
      volatile std::uint64_t x = 1;
      while (!stop.load(std::memory_order_relaxed)) x = x * 6364136223846793005U + 1;
    });
    s.go([&] {
      started.fetch_add(1);
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
    // Each holds the only P from its start on, so that the next one starts at all is preemption.
    ASSERT_TRUE(eventually([&] { return started.load() == 3; }));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(debug::audit(), 0);
    stop.store(true);
    s.wait();
  });
}

// -- PRE-03

__attribute__((noinline)) int big_frame() {
  volatile char frame[8192];
  for (std::size_t i = 0; i < sizeof frame; i += 512) frame[i] = 1;
  return frame[512];
}

TEST(Conformance, PRE_03_a_pending_stop_is_honoured_with_a_big_frame_ahead) {
  run_clean(with_procs(2), [] {
    std::atomic<bool> stop{false}, started{false};
    scope s;
    s.go([&] {
      started.store(true);
      while (!stop.load(std::memory_order_relaxed)) {
        for (int i = 0; i < 1'000'000; ++i) asm volatile("");
        EXPECT_EQ(big_frame(), 1);
      }
    });
    ASSERT_TRUE(eventually([&] { return started.load(); }));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(debug::audit(), 0);
    stop.store(true);
    s.wait();
  });
}

// -- PRE-05

std::atomic<long> signalled_tid{0};

TEST(Conformance, PRE_05_a_signal_to_one_thread_arrives_there) {
  struct sigaction sa = {}, old = {};
  sa.sa_handler = [](int) { signalled_tid.store(::syscall(SYS_gettid)); };
  sigaction(SIGUSR1, &sa, &old);
  run_clean(with_procs(2), [] {
    for (int i = 0; i < 20; ++i) {
      const os_thread_guard locked;
      sigset_t s, before;
      sigemptyset(&s);
      sigaddset(&s, SIGUSR1);
      pthread_sigmask(SIG_UNBLOCK, &s, &before);
      signalled_tid.store(0);
      const long tid = ::syscall(SYS_gettid);
      ::syscall(SYS_tgkill, ::getpid(), tid, SIGUSR1);
      EXPECT_TRUE(eventually([] { return signalled_tid.load() != 0; }, 1s));
      EXPECT_EQ(signalled_tid.load(), tid);
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
  });
  sigaction(SIGUSR1, &old, nullptr);
}

// -- PRE-06: a plain thread's call is served though a goroutine spins for ever on the only P

TEST(Conformance, PRE_06_a_foreign_thread_gets_an_answer_beside_a_spinner) {
  std::atomic<bool> stop{false}, spins{false};
  chan<int> ask, answer;
  go([&] {
    spins.store(true);
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  int got = 0;
  std::thread host([&] {
    ask.send(41);
    got = answer.recv().value_or(0);
    stop.store(true);
  });
  run(with_procs(1), [&] {
    ASSERT_TRUE(eventually([&] { return spins.load(); }));
    answer.send(*ask.recv() + 1);
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));
  });
  host.join();
  EXPECT_EQ(got, 42);
}

// -- PRE-08: nothing of the runtime is ever stopped in the middle

TEST(Conformance, PRE_08_no_stop_inside_the_runtime) {
  run_clean(with_procs(1), [] {
    // Goroutines that do nothing but runtime calls which may not give way, beside one that waits:
    // each slice ends by a signal, most of them inside a call.
    std::atomic<bool> stop{false};
    chan<int> c(4);
    mutex m;
    scope s;
    for (int i = 0; i < 3; ++i) {
      s.go([&] {
        int v = 0;
        while (!stop.load(std::memory_order_relaxed)) {
          c.try_send(1);
          c.try_recv(v);
          if (m.try_lock()) m.unlock();
        }
      });
    }
    for (int i = 0; i < 20; ++i) {
      sleep_for(5ms);
      EXPECT_EQ(debug::audit(), 0);
    }
    stop.store(true);
    s.wait();
  });
}

// -- what API.md promises of config::preempt

TEST(Conformance, PRE_off_means_off) {
  config c = with_procs(1);
  c.preempt = false;
  run(c, [] {
    std::atomic<bool> ran{false};
    go([&] { ran.store(true); });
    const auto until = steady::now() + 50ms;
    while (steady::now() < until) small_function();
    EXPECT_FALSE(ran.load());
    yield();
    EXPECT_TRUE(ran.load());
  });
}

}  // namespace
}  // namespace weft::test
