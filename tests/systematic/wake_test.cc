// SPDX-License-Identifier: Apache-2.0
// The wake protocol (core/idle.h) over the real idle word and the real run queue: when all is
// quiet there is no runnable goroutine beside an idle P with nobody looking.
//
// A waker enqueues and does what wake() does (sched/sched.h, wake_slow's claim); the other is an M
// that has found nothing and does what the end of find_work does: give the P up, full barrier, look
// again. What is started or stays awake will look by itself, so it counts as having found it.
#include <gtest/gtest.h>

#include "core/idle.h"
#include "core/runq.h"
#include "systematic/checker.h"

namespace {

using namespace systematic;
using weft::rt::G;
using weft::rt::idle_word;
using queue = weft::rt::basic_runq<4>;
using owner = weft::rt::runq_owner<queue>;

struct subject {
  idle_word idle;
  queue q;  // the waker's P's
  bool somebody_looks = false, found = false;
  G* const g = reinterpret_cast<G*>(64);

  void wake() {
    if (idle.wants_waker() && idle.claim_spinner() == idle_word::wake_result::start)
      somebody_looks = true;
  }
  // By ready and spawn: runnext, whose exchange is the barrier.
  void put_next_and_wake() {
    owner(q).put_next(g);
    wake();
  }
  // Into the ring, with a fence behind it.
  void put_and_wake() {
    owner(q).put(g);
    weft::rt::fence(std::memory_order_seq_cst);
    wake();
  }
  void give_up(bool spinning) {
    if (!idle.give_up_p(spinning)) {
      found = true;  // somebody left a note: it spins and looks again
      return;
    }
    weft::rt::fence(std::memory_order_seq_cst);  // second_look (sched/find_work.cc)
    if (!q.empty()) found = true;
  }
};

template <class Waker>
void nobody_is_forgotten(bool spinning, Waker enqueue) {
  explore({}, [=](execution& x) {
    subject s;
    // A second P at work, its M spinning or not.
    if (spinning) require(s.idle.try_start_spinning(2), "it may spin");
    x.threads([&] { (s.*enqueue)(); }, [&] { s.give_up(spinning); });
    require(s.somebody_looks || s.found, "somebody looks");
  });
}

TEST(Wake, RunnextAndASpinner) { nobody_is_forgotten(true, &subject::put_next_and_wake); }
TEST(Wake, RunnextAndOneThatDoesNotSpin) {
  nobody_is_forgotten(false, &subject::put_next_and_wake);
}
TEST(Wake, TheRingAndASpinner) { nobody_is_forgotten(true, &subject::put_and_wake); }
TEST(Wake, TheRingAndOneThatDoesNotSpin) { nobody_is_forgotten(false, &subject::put_and_wake); }

// Two wakers, one idle P: one of them starts a spinner, and one only.
TEST(Wake, OneIsStarted) {
  explore({}, [](execution& x) {
    idle_word idle;
    idle.put_p();
    int started[2] = {};
    const auto wake = [&](int i) {
      if (idle.claim_spinner() == idle_word::wake_result::start) started[i] = 1;
    };
    x.threads([&] { wake(0); }, [&] { wake(1); });
    require(started[0] + started[1] == 1, "one is started");
    require(idle.load().spinning == 1 && idle.load().idle_ps == 1, "and counted");
  });
}

// A claim in vain leaves a note, which the next one that gives up finds.
TEST(Wake, AVainClaimLeavesANote) {
  explore({}, [](execution& x) {
    idle_word idle;
    bool stays = false;
    idle.put_p();
    require(idle.claim_spinner() == idle_word::wake_result::start, "claimed");
    idle.take_p(false);  // somebody else took the P
    x.threads([&] { idle.unclaim_spinner(); }, [&] { stays = !idle.give_up_p(false); });
    require(stays || idle.load().need, "the note is there, or was found");
    require(idle.load().spinning == (stays ? 1U : 0U), "counted");
  });
}

}  // namespace
