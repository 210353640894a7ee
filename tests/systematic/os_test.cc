// SPDX-License-Identifier: Apache-2.0
// os/mutex.h with os/mutex.cc, and os/note.h: one inside at a time, who sees what the last one did;
// no wake-up is lost, with deadlines and with futex calls that come back for nothing.
#include <cstdint>
#include <gtest/gtest.h>

#include "os/mutex.h"
#include "os/note.h"
#include "systematic/checker.h"

namespace {

using namespace systematic;
using weft::rt::lock_rank;

// After its hundred looks a thread goes to sleep, however little happens meanwhile.
constexpr int all_looks = 100;

const body two_add = [](execution& x) {
  weft::rt::mutex m(lock_rank::leaf);
  int count = 0;
  const auto add = [&] {
    m.lock();
    ++count;
    m.unlock();
  };
  x.threads(add, add);
  require(count == 2 && !m.is_locked(), "both were inside, one after the other");
};

TEST(OsMutex, TwoWithoutSleep) { explore({}, two_add); }

TEST(OsMutex, TwoWithSleep) {
  explore({.preemptions = 2, .stale = 1, .spins = all_looks, .max_steps = 5000}, two_add);
}

TEST(OsMutex, ThreeBySeeds) {
  explore({.random = 3000, .stale = 1, .spurious = 1, .spins = all_looks, .max_steps = 5000},
          [](execution& x) {
            weft::rt::mutex m(lock_rank::leaf);
            int count = 0;
            const auto add = [&] {
              for (int i = 0; i < 2; ++i) {
                m.lock();
                ++count;
                m.unlock();
              }
            };
            x.threads(add, add, add);
            require(count == 6 && !m.is_locked(), "nobody was lost");
          });
}

// The others sleep or give up: lock_beside and try_lock are the same lock.
TEST(OsMutex, TryLockAndLockBeside) {
  explore({}, [](execution& x) {
    weft::rt::mutex m(lock_rank::leaf);
    int count = 0, tried = 0;
    x.threads(
        [&] {
          m.lock_beside();
          ++count;
          m.unlock();
        },
        [&] {
          if (!m.try_lock()) return;
          ++count;
          ++tried;
          m.unlock();
        },
        [&] {
          m.lock();
          ++count;
          m.unlock();
        });
    require(count == 2 + tried && !m.is_locked(), "whoever was inside was alone");
  });
}

TEST(Note, TheSleeperSeesWhatTheWakerDid) {
  explore({.spurious = 1}, [](execution& x) {
    weft::rt::note n;
    int data = 0;
    x.threads(
        [&] {
          data = 1;
          n.wake();
        },
        [&] {
          n.sleep();
          require(data == 1, "it is seen");
        });
  });
}

TEST(Note, ADeadlineAndAWakeUpMeet) {
  explore({.spurious = 1}, [](execution& x) {
    weft::rt::note n;
    int data = 0;
    bool woken = false;
    x.threads(
        [&] {
          data = 1;
          n.wake();
        },
        [&] {
          woken = n.sleep_until(1);
          if (woken) require(data == 1, "it is seen");
          if (!woken) n.sleep();  // it comes all the same
          require(data == 1, "it is seen");
        });
  });
}

TEST(Note, IsSetHandsOver) {
  explore({}, [](execution& x) {
    weft::rt::note n;
    int data = 0;
    x.threads(
        [&] {
          data = 1;
          n.wake();
        },
        [&] {
          if (n.is_set()) require(data == 1, "it is seen");
        });
  });
}

}  // namespace
