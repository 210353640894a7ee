// SPDX-License-Identifier: Apache-2.0
// LCK: lock_os_thread. LCK-03 is in tests/crash; LCK-09 is about coroutines, which weft does not
// have.
#include <atomic>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "sched/sched.h"
#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/sync.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

long tid() { return ::syscall(SYS_gettid); }

bool thread_is_gone(long id) {
  const std::string path = "/proc/self/task/" + std::to_string(id) + "/stat";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;
  char text[256] = {};
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return true;
  const std::string s(text);
  const auto paren = s.rfind(')');
  return paren == std::string::npos || s[paren + 2] == 'Z' || s[paren + 2] == 'X';
}

TEST(Conformance, LCK_01_locks_nest) {
  run_clean(with_procs(2), [] {
    const auto locks = [] { return rt::current_g()->locks; };
    lock_os_thread();
    lock_os_thread();
    EXPECT_EQ(locks(), 2U);
    unlock_os_thread();
    EXPECT_EQ(locks(), 1U);
    EXPECT_TRUE(rt::current_g()->bound);
    unlock_os_thread();
    EXPECT_EQ(locks(), 0U);
    EXPECT_FALSE(rt::current_g()->bound);
    unlock_os_thread();
    EXPECT_EQ(locks(), 0U);
    {
      const os_thread_guard a, b;
      EXPECT_EQ(locks(), 2U);
    }
    EXPECT_EQ(locks(), 0U);
  });
  lock_os_thread();  // on a plain thread nothing happens
  unlock_os_thread();
  unlock_os_thread();
}

std::atomic<int> key_destructors{0};

TEST(Conformance, LCK_02_a_locked_exit_ends_the_thread) {
  pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key, [](void*) { key_destructors.fetch_add(1); }), 0);
  for (int procs : {1, 2, 16}) {
    SCOPED_TRACE(procs);
    run_clean(with_procs(procs), [&] {
      for (int round = 0; round < 10; ++round) {
        const int before = key_destructors.load();
        chan<long> c(1);
        go([&] {
          lock_os_thread();
          pthread_setspecific(key, &key);
          c.send(tid());
        });  // ends locked
        const long dead = *c.recv();
        EXPECT_TRUE(eventually([&] { return thread_is_gone(dead); }));
        EXPECT_TRUE(eventually([&] { return key_destructors.load() == before + 1; }));
        // Nobody is ever seen on it again.
        std::atomic<bool> seen{false};
        scope s;
        for (int i = 0; i < 50; ++i) {
          s.go([&] {
            yield();
            if (tid() == dead && !thread_is_gone(dead)) seen.store(true);
          });
        }
        s.wait();
        EXPECT_FALSE(seen.load());
      }
    });
  }
  pthread_key_delete(key);
}

TEST(Conformance, LCK_02_a_locked_goexit_and_a_locked_exception_guard) {
  run_clean(with_procs(2), [] {
    chan<long> c(1);
    go([&] {
      lock_os_thread();
      c.send(tid());
      goexit();
    });
    const long dead = *c.recv();
    EXPECT_TRUE(eventually([&] { return thread_is_gone(dead); }));
    // The guard unlocks on the way out: the thread lives on.
    go([&] {
      const os_thread_guard guard;
      c.send(tid());
      goexit();
    });
    const long alive = *c.recv();
    EXPECT_TRUE(eventually([] { return num_goroutines() == 1; }));
    EXPECT_FALSE(thread_is_gone(alive));
  });
}

TEST(Conformance, LCK_04_new_threads_come_from_a_clean_template) {
  char cwd[4096];
  ASSERT_NE(::getcwd(cwd, sizeof cwd), nullptr);
  run_clean(with_procs(1), [&] {
    chan<bool> c(1);
    go([&] {
      lock_os_thread();
      c.send(::unshare(CLONE_FS) == 0 && ::chdir("/") == 0);
    });  // ends locked, with a thread of its own file system view
    if (!*c.recv()) GTEST_SKIP() << "unshare is refused";
    for (int i = 0; i < 10; ++i) {
      chan<std::string> where(1);
      go([&] {
        const os_thread_guard locked;
        char now[4096] = {};
        where.send(::getcwd(now, sizeof now) != nullptr ? now : "?");
      });
      EXPECT_EQ(*where.recv(), cwd);
    }
  });
}

TEST(Conformance, LCK_07_a_locked_goroutine_blocks_yields_and_wakes_on_its_thread) {
  for (int procs : {1, 2, 3, 16}) {
    SCOPED_TRACE(procs);
    run_clean(with_procs(procs), [] {
      scope s;
      for (int k = 0; k < 4; ++k) {
        s.go([] {
          const os_thread_guard locked;
          const long own = tid();
          chan<int> c;
          scope inner;
          inner.go([&] {
            for (int i = 0; i < 10; ++i) EXPECT_EQ(c.recv(), i);
          });
          for (int i = 0; i < 10; ++i) {
            c.send(i);
            EXPECT_EQ(tid(), own);
          }
          for (int i = 0; i < 10; ++i) {
            yield();
            EXPECT_EQ(tid(), own);
            sleep_for(1ms);
            EXPECT_EQ(tid(), own);
          }
          inner.wait();
          blocking([] { ::usleep(1000); });
          EXPECT_EQ(tid(), own);
        });
      }
      s.wait();
    });
  }
}

TEST(Conformance, LCK_07_two_locked_ones_play_ping_pong) {
  for (int procs : {1, 2}) {
    run_clean(with_procs(procs), [] {
      chan<int> ping, pong;
      scope s;
      s.go([&] {
        const os_thread_guard locked;
        const long own = tid();
        for (int i = 0; i < 2000; ++i) {
          pong.send(*ping.recv());
          ASSERT_EQ(tid(), own);
        }
      });
      const os_thread_guard locked;
      for (int i = 0; i < 2000; ++i) {
        ping.send(i);
        ASSERT_EQ(pong.recv(), i);
      }
      s.wait();
    });
  }
}

TEST(Conformance, LCK_08_main_starts_on_the_callers_thread_and_stays_there_if_it_locks) {
  const long caller = tid();
  for (int round = 0; round < 3; ++round) {
    run_clean(with_procs(2), [&] {
      EXPECT_EQ(tid(), caller);
      lock_os_thread();
      for (int i = 0; i < 10; ++i) {
        sleep_for(100us);
        yield();
        EXPECT_EQ(tid(), caller);
      }
      chan<int> c;
      go([&] { c.send(1); });
      EXPECT_EQ(c.recv(), 1);
      EXPECT_EQ(tid(), caller);
      if (round != 1) unlock_os_thread();  // once: returns locked
    });
  }
  std::thread([] {
    const long other = tid();
    run_clean(with_procs(1), [&] {
      const os_thread_guard locked;
      sleep_for(1ms);
      EXPECT_EQ(tid(), other);
    });
  }).join();
}

// With a std::mutex held over a park, which is what os_thread_guard is for (API.md).
TEST(Conformance, LCK_a_std_mutex_may_be_held_over_a_park_when_locked) {
  run_clean(with_procs(2), [] {
    std::mutex m;
    int n = 0;
    scope s;
    for (int i = 0; i < 8; ++i) {
      s.go([&] {
        const os_thread_guard locked;
        for (int k = 0; k < 20; ++k) {
          const std::lock_guard hold(m);
          ++n;
          sleep_for(50us);
        }
      });
    }
    s.wait();
    EXPECT_EQ(n, 160);
  });
}

}  // namespace
}  // namespace weft::test
