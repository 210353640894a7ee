// SPDX-License-Identifier: Apache-2.0
// poll/desc.h: one who waits for a descriptor, a report that it is ready, and a reason not to wait
// (a deadline, a close) that is written outside the slot. Nobody waits for ever, and whoever is
// woken is woken once.
//
// The waiter does what poll_wait does (sched/fd_wait.cc), with a gate in the place of park.
#include "poll/desc.h"

#include <gtest/gtest.h>

#include "systematic/checker.h"

namespace {

using namespace systematic;
using weft::rt::atomic;
using weft::rt::memory_order_seq_cst;
using weft::rt::poll_waiter;
using weft::rt::wait_slot;

struct subject {
  wait_slot slot;
  atomic<std::uint32_t> info{0};  // fd_desc::info
  gate parked;
  int woken = 0, data = 0;

  bool must_not_wait() { return info.load(memory_order_seq_cst) != 0; }
  void wait() {
    for (;;) {
      if (must_not_wait()) return;
      if (!slot.begin()) return;
      if (must_not_wait()) {
        slot.finish();
        return;
      }
      poll_waiter w;
      w.slot = &slot;
      if (slot.publish(&w)) parked.pass();
      if (slot.finish()) return;
    }
  }
  void notify(bool came) {
    if (poll_waiter* w = slot.notify(came); w != nullptr) {
      w->next = nullptr;  // the waiter's contents are seen
      ++woken;
      parked.open();
    }
  }
};

TEST(Poll, AReportIsNotLost) {
  explore({}, [](execution& x) {
    subject s;
    x.threads(
        [&] {
          s.wait();
          require(s.data == 1, "what came is seen");
        },
        [&] {
          s.data = 1;
          s.notify(true);
        });
  });
}

TEST(Poll, AReasonNotToWaitIsNotLost) {
  explore({}, [](execution& x) {
    subject s;
    x.threads([&] { s.wait(); },
              [&] {
                s.info.store(1, memory_order_seq_cst);
                s.notify(false);
              });
    require(s.woken <= 1, "woken once");
  });
}

TEST(Poll, BothAtOnce) {
  explore({}, [](execution& x) {
    subject s;
    x.threads([&] { s.wait(); }, [&] { s.notify(true); },
              [&] {
                s.info.store(1, memory_order_seq_cst);
                s.notify(false);
              });
  });
}

// forget() is 'try the call now': what is reported later stays.
TEST(Poll, ForgetKeepsWhatComesLater) {
  explore({}, [](execution& x) {
    subject s;
    atomic<int> bytes{0};
    x.threads(
        [&] {
          s.slot.forget();
          // The call that follows asks the kernel: a read-modify-write is always up to date.
          if (bytes.fetch_add(0, std::memory_order_acq_rel) == 0) s.wait();
          require(bytes.fetch_add(0, std::memory_order_acq_rel) == 1, "there is something to read");
        },
        [&] {
          bytes.fetch_add(1, std::memory_order_acq_rel);
          s.notify(true);
        });
  });
}

// A plain thread that found out by itself, while somebody notifies.
TEST(Poll, WithdrawOrBeTaken) {
  explore({}, [](execution& x) {
    subject s;
    x.threads(
        [&] {
          if (!s.slot.begin()) return;
          poll_waiter w;
          w.slot = &s.slot;
          if (s.slot.publish(&w) && !s.slot.withdraw(&w)) s.parked.pass();
          s.slot.finish();
        },
        [&] { s.notify(true); });
  });
}

}  // namespace
