// SPDX-License-Identifier: Apache-2.0
// Moves the calling goroutine to another thread, for certain.
//
// A helper goroutine must first show up while the caller spins without giving way, so it is on
// another thread. The caller parks; the helper makes it ready, which puts it into the runnext of
// the helper's P, and ends. Only if the machine holds the helper up just there may an idle thread,
// the old one too, be faster: then try again.
#pragma once

#include <atomic>
#include <memory>
#include <sys/syscall.h>
#include <unistd.h>

#include "sched/park.h"
#include "support/runtime.h"
#include "weft/go.hpp"

namespace weft::test {

// By system call: nothing for a compiler or libc to remember over a switch.
[[gnu::noinline]] inline pid_t thread_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

namespace migrate_detail {

struct meeting {
  std::atomic<int> helper{0};  // 1: it is there; -1: the caller has given up
  std::atomic<bool> parked{false};
  rt::G* g = nullptr;

  static void commit(void*, void* self) {
    static_cast<meeting*>(self)->parked.store(true, std::memory_order_release);  // last touch
  }
  static void help(meeting& m) {
    int nobody = 0;
    if (!m.helper.compare_exchange_strong(nobody, 1)) return;
    while (!m.parked.load(std::memory_order_acquire)) rt::cpu_relax();
    rt::ready(m.g);
  }
};

// False if no other thread took the helper within the limit.
inline bool once() {
  auto m = std::make_shared<meeting>();
  m->g = rt::current_g();
  weft::go([m] { meeting::help(*m); });
  if (!spin_until([&] { return m->helper.load() == 1; })) {
    int nobody = 0;
    if (m->helper.compare_exchange_strong(nobody, -1)) return false;
  }
  rt::park(meeting::commit, m.get(), rt::wait_reason::internal);
  return true;
}

}  // namespace migrate_detail

// True once the caller runs on another thread than it did. False: that never happened. Needs two
// Ps.
[[gnu::noinline]] inline bool migrate() {
  constexpr int tries = 1000;
  for (int i = 0; i < tries; ++i) {
    const pid_t before = thread_id();
    if (!migrate_detail::once()) return false;
    if (thread_id() != before) return true;
  }
  return false;
}

}  // namespace weft::test
