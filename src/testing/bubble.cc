// SPDX-License-Identifier: Apache-2.0
// testing::bubble over sched/bubble.h: a carrier goroutine of its own, locked to its thread, which
// becomes the bubble's. The caller waits for it, so it may be main on m0, a locked goroutine or a
// plain thread; without a run around it there is one for the bubble alone, which bubbles of other
// threads join. A plain thread beside a run that ends first is told so when nobody is in the bubble
// any more: its members may refer to what is on the thread's stack.
//
// f is the bubble's first member. It takes the stack that a main would have: what runs in a bubble
// is mostly a test's whole body.
//
// Runs on the caller's stack; carry() on the carrier's.
#include <memory>
#include <stdexcept>

#include "sched/bubble.h"
#include "sched/park.h"
#include "sched/procs.h"
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
  bool begun = false;  // in a run of its own
  bool root_is_gone = false;
  std::size_t left = 0;  // members that are blocked for ever

  void carry() {
    lock_os_thread();
    rt::bubble* b = rt::open_bubble(seed);
    spawn<closure<root>>(root{this});
    rt::drive_bubble(b);
    root_is_gone = b->root == nullptr;
    const bool spoiled = b->spoiled;
    left = rt::close_bubble(b);
    if (!spoiled) unlock_os_thread();  // else the thread ends with us
  }
  struct root {
    bubble_run* r;
    void operator()() const { r->f(r->arg); }
  };

  void on_goroutine() {
    event done;
    go([this, &done] {
      carry();
      done.set();
    });
    done.wait();
  }
  // On a plain thread, which may have gone when the carrier begins.
  struct from_thread {
    explicit from_thread(bubble_run* r) noexcept : of(r) {}
    rt::bubble_wait w;
    bubble_run* of;
  };
  // False: no run is on, or it was over before we had our turn.
  bool beside_a_run() {
    const auto call = std::make_shared<from_thread>(this);
    if (!rt::begin_wait(&call->w)) return false;
    go([call] {
      if (!rt::carry_for(&call->w)) return;
      call->of->carry();
      rt::end_wait(&call->w);
    });
    call->w.woken.sleep();
    if (call->w.at == rt::bubble_wait::stage::done) return true;
    if (!call->w.carried_in_vain) return false;
    rt::world_sem.lock(rt::wait_reason::world);  // run() holds it until everybody has stopped
    rt::world_sem.unlock();
    throw std::logic_error("the run that the bubble was in has ended");
  }
  void on_thread() {
    while (!begun && !beside_a_run()) {
      try {
        rt::run_for_bubble(
            [](void* p) {
              auto* self = static_cast<bubble_run*>(p);
              self->begun = true;
              self->on_goroutine();
              rt::close_to_joiners();
              return 0;
            },
            this);
      } catch (const rt::beside_another_run&) {
      }
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
