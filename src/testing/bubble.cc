// SPDX-License-Identifier: Apache-2.0
// testing::bubble over sched/bubble.h: a carrier goroutine of its own, locked to its thread, which
// becomes the bubble's. The caller waits for it, so it may be main on m0, a locked goroutine or a
// plain thread; without a run around it there is one for the bubble alone.
//
// f is the bubble's first member. It takes the stack that a main would have: what runs in a bubble
// is mostly a test's whole body.
//
// Runs on the caller's stack; carry() on the carrier's.
#include <stdexcept>

#include "sched/bubble.h"
#include "sched/park.h"
#include "weft/detail/event.hpp"
#include "weft/run.hpp"
#include "weft/testing.hpp"
#include "weft/thread.hpp"

namespace weft::detail {
namespace {

struct bubble_run {
  bubble_run(std::uint64_t s, void (*fn)(void*), void* a) noexcept : seed(s), f(fn), arg(a) {}
  const std::uint64_t seed;
  void (*const f)(void*);
  void* const arg;
  bool carried = false;
  bool root_is_gone = false;
  std::size_t left = 0;  // members that are blocked for ever
  event done;

  void carry() {
    carried = true;
    lock_os_thread();
    rt::bubble* b = rt::open_bubble(seed);
    spawn<closure<root>>(root{this});
    rt::drive_bubble(b);
    root_is_gone = b->root == nullptr;
    const bool spoiled = b->spoiled;
    left = rt::close_bubble(b);
    if (!spoiled) unlock_os_thread();  // else the thread ends with us
    done.set();
  }
  struct root {
    bubble_run* r;
    void operator()() const { r->f(r->arg); }
  };

  void on_goroutine() {
    go([this] { carry(); });
    done.wait();
  }
  // On a plain thread.
  void on_thread() {
    while (!carried) {
      if (rt::sched.active.load(rt::memory_order_acquire)) {
        on_goroutine();
        return;
      }
      try {
        run([this] { on_goroutine(); });
      } catch (const std::logic_error&) {
        if (!rt::sched.active.load(rt::memory_order_acquire)) throw;
      }  // somebody else's run has begun
    }
  }
};

}  // namespace

void run_bubble(std::uint64_t seed, void (*f)(void*), void* arg, const std::exception_ptr& thrown) {
  if (rt::current_bubble() != 0)
    throw std::logic_error("synctest.Run called from within a synctest bubble");
  bubble_run r(seed, f, arg);
  if (rt::current_g() != nullptr) {
    r.on_goroutine();
  } else {
    r.on_thread();
  }
  if (r.left == 0 || thrown) return;  // f's own exception says more
  throw testing::deadlock(
      r.root_is_gone ? "deadlock: main bubble goroutine has exited but blocked goroutines remain"
                     : "deadlock: all goroutines in bubble are blocked");
}

}  // namespace weft::detail

namespace weft::testing {

void wait() {
  rt::bubble* b = rt::bubble_of(rt::current_m());
  if (b == nullptr) throw std::logic_error("goroutine is not in a bubble");
  if (!rt::wait_in_bubble(b)) throw std::logic_error("wait already in progress");
}

}  // namespace weft::testing
