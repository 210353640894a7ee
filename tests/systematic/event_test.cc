// SPDX-License-Identifier: Apache-2.0
// weft/detail/event.hpp and sync/event.cc: the event word (nobody, a sole waiter, a list under a
// lock, set), the countdown of a scope and the gate, with plain threads as those who wait. Whoever
// waits is woken, sees what was done before, and may destroy the object at once.
#include "weft/detail/event.hpp"

#include <gtest/gtest.h>

#include "systematic/checker.h"

namespace {

using namespace systematic;
using weft::detail::countdown;
using weft::detail::event;

TEST(Event, TheWaiterMayDestroyIt) {
  explore({}, [](execution& x) {
    auto* e = new event;
    int data = 0;
    x.threads(
        [&] {
          data = 1;
          e->set();
        },
        [&] {
          e->wait();
          require(data == 1, "what was done before is seen");
          delete e;
        });
  });
}

TEST(Event, TwoWait) {
  explore({.preemptions = 2, .stale = 1}, [](execution& x) {
    event e;
    int data = 0;
    const auto wait = [&] {
      e.wait();
      require(data == 1, "what was done before is seen");
    };
    x.threads(
        [&] {
          data = 1;
          e.set();
        },
        wait, wait);
    require(e.is_set(), "it has happened");
  });
}

TEST(Event, ADeadlineMeetsSet) {
  explore({}, [](execution& x) {
    event e;
    int data = 0;
    x.threads(
        [&] {
          data = 1;
          e.set();
        },
        [&] {
          if (e.wait_until(1)) require(data == 1, "what was done before is seen");
        });
    require(e.is_set(), "it has happened");
  });
}

TEST(Event, OneWithADeadlineAndOneWithout) {
  explore({.preemptions = 1, .stale = 1}, [](execution& x) {
    event e;
    int data = 0;
    x.threads(
        [&] {
          data = 1;
          e.set();
        },
        [&] {
          if (e.wait_until(1)) require(data == 1, "what was done before is seen");
        },
        [&] {
          e.wait();
          require(data == 1, "what was done before is seen");
        });
  });
}

TEST(Event, TwoSet) {
  explore({}, [](execution& x) {
    event e;
    x.threads([&] { e.set(); }, [&] { e.set(); }, [&] { e.wait(); });
    require(e.is_set(), "it has happened");
  });
}

TEST(Countdown, TheWaiterMayDestroyIt) {
  explore({}, [](execution& x) {
    auto* c = new countdown;
    int data[2] = {};
    c->add();
    c->add();
    const auto end = [&](int i) {
      data[i] = 1;
      c->done();
    };
    x.threads([&] { end(0); }, [&] { end(1); },
              [&] {
                c->wait();
                require(data[0] == 1 && data[1] == 1, "what was done is seen");
                delete c;
              });
  });
}

TEST(Gate, OneInsideAtATime) {
  explore({.preemptions = 1, .stale = 1}, [](execution& x) {
    weft::detail::gate g(1);
    int inside = 0;
    const auto pass = [&] {
      g.enter();
      ++inside;
      g.leave();
    };
    x.threads(pass, pass, pass);
    require(inside == 3, "all came through");
  });
}

}  // namespace
