// SPDX-License-Identifier: Apache-2.0
// signals and with_signals: who gets what, and what a signal does when nobody wants it any more.
#include "weft/signal.hpp"

#include <csignal>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "sched/waiter.h"
#include "unit/sched/support.h"
#include "weft/context.hpp"
#include "weft/select.hpp"
#include "weft/sync.hpp"
#include "weft/time.hpp"

namespace weft::signal_test {
namespace {

using namespace std::chrono_literals;
using sched_test::run_on_each;
using test::eventually;

void send(int sig) { ASSERT_EQ(::kill(::getpid(), sig), 0); }

template <class F>
void everywhere(F f) {
  run_on_each(f);
  std::thread(f).join();
  f();
}

// What a signal does now. Only SIG_DFL, SIG_IGN and handlers without siginfo are told apart.
void (*disposition(int sig))(int) {
  struct sigaction sa {};
  ::sigaction(sig, nullptr, &sa);
  return sa.sa_handler;
}

std::atomic<int> handled{0};
void count(int) { ++handled; }

// Puts a disposition in place for one test.
class with_handler {
 public:
  with_handler(int sig, void (*h)(int)) : sig_(sig) {
    struct sigaction sa {};
    sa.sa_handler = h;
    ::sigaction(sig, &sa, &old_);
  }
  with_handler(const with_handler&) = delete;
  with_handler& operator=(const with_handler&) = delete;
  ~with_handler() { ::sigaction(sig_, &old_, nullptr); }

 private:
  int sig_;
  struct sigaction old_ {};
};

class SignalTest : public ::testing::Test {
 protected:
  void SetUp() override { handled = 0; }
  void TearDown() override {  // nobody is left who wants one
    EXPECT_TRUE(eventually([] { return rt::errands.load() == 0 && rt::awaited.load() == 0; }));
  }
};

TEST_F(SignalTest, Arrives) {
  everywhere([] {
    const signals s({SIGUSR1, SIGUSR2});
    for (const int sig : {SIGUSR1, SIGUSR2, SIGUSR1}) {
      send(sig);
      EXPECT_EQ(s.c.recv(), sig);
    }
    EXPECT_EQ(s.c.len(), 0U);
  });
}

TEST_F(SignalTest, RealTimeSignalsAreCountedNotMerged) {
  everywhere([] {
    const signals s({SIGRTMIN + 1});
    for (int i = 0; i < 20; ++i) send(SIGRTMIN + 1);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(s.c.recv(), SIGRTMIN + 1);
  });
}

TEST_F(SignalTest, EverybodyWhoWantsItGetsIt) {
  everywhere([] {
    const signals a({SIGUSR1}), b({SIGUSR1, SIGUSR2});
    send(SIGUSR1);
    EXPECT_EQ(a.c.recv(), SIGUSR1);
    EXPECT_EQ(b.c.recv(), SIGUSR1);
    send(SIGUSR2);
    EXPECT_EQ(b.c.recv(), SIGUSR2);
    EXPECT_EQ(a.c.len(), 0U);
  });
}

TEST_F(SignalTest, AFullChannelDropsAndNobodyWaits) {
  const signals slow({SIGRTMIN}), other({SIGRTMIN});
  const std::size_t room = slow.c.cap();
  for (std::size_t i = 0; i < 3 * room; ++i) {
    send(SIGRTMIN);
    EXPECT_EQ(other.c.recv(), SIGRTMIN);
  }
  EXPECT_EQ(slow.c.len(), room);
}

TEST_F(SignalTest, StopGivesBackWhatWasThere) {
  const with_handler mine(SIGUSR1, count);
  const with_handler ignored(SIGUSR2, SIG_IGN);
  everywhere([] {
    handled = 0;
    signals a({SIGUSR1, SIGUSR2}), b({SIGUSR1});
    EXPECT_NE(disposition(SIGUSR1), count);
    a.stop();
    EXPECT_EQ(disposition(SIGUSR2), SIG_IGN);
    EXPECT_NE(disposition(SIGUSR1), count);  // b wants it
    send(SIGUSR1);
    EXPECT_EQ(b.c.recv(), SIGUSR1);
    EXPECT_EQ(handled, 0);
    b.stop();
    b.stop();
    EXPECT_EQ(disposition(SIGUSR1), count);
    send(SIGUSR1);
    EXPECT_TRUE(eventually([] { return handled == 1; }));
    EXPECT_EQ(a.c.len() + b.c.len(), 0U);
  });
}

TEST_F(SignalTest, AHandlerThatSomebodyElseInstalledMeanwhileStays) {
  const with_handler before(SIGUSR1, SIG_IGN);
  signals s({SIGUSR1});
  const with_handler mine(SIGUSR1, count);
  s.stop();
  EXPECT_EQ(disposition(SIGUSR1), count);
}

TEST_F(SignalTest, WhatHadArrivedAtStopCanStillBeReceived) {
#if defined(WEFT_TSAN)
  GTEST_SKIP() << "TSan puts handlers off until the thread's next call that blocks";
#endif
  const with_handler ignored(SIGRTMIN, SIG_IGN);
  everywhere([] {
    signals s({SIGRTMIN});
    for (int i = 0; i < 10; ++i) ASSERT_EQ(::pthread_kill(::pthread_self(), SIGRTMIN), 0);
    s.stop();  // the handler has run ten times on this thread
    EXPECT_EQ(s.c.len(), 10U);
  });
}

// The runtime's other threads block everything; so the service thread must take it.
TEST_F(SignalTest, ArrivesThoughTheProgramBlocksIt) {
  sigset_t all, old;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old);
  {
    const signals s({SIGUSR1});
    send(SIGUSR1);
    EXPECT_EQ(s.c.recv(), SIGUSR1);
  }
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

TEST_F(SignalTest, MovesAndDestruction) {
  const with_handler ignored(SIGUSR1, SIG_IGN);
  {
    signals a({SIGUSR1});
    signals b(std::move(a));
    a.stop();  // moved from: nothing
    send(SIGUSR1);
    EXPECT_EQ(b.c.recv(), SIGUSR1);
    a = std::move(b);
    send(SIGUSR1);
    EXPECT_EQ(a.c.recv(), SIGUSR1);
    a = signals({SIGUSR2});
    EXPECT_EQ(disposition(SIGUSR1), SIG_IGN);
  }
  EXPECT_EQ(disposition(SIGUSR2), SIG_DFL);
  const signals none({});
  EXPECT_EQ(none.c.len(), 0U);
}

TEST_F(SignalTest, WhatCannotBeCaughtIsRefused) {
  for (const int sig : {0, -1, 65, 32, SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGURG}) {
    EXPECT_THROW(signals({SIGUSR1, sig}), std::invalid_argument) << sig;
    EXPECT_THROW((void)with_signals(background(), {sig}), std::invalid_argument) << sig;
  }
  EXPECT_EQ(disposition(SIGUSR1), SIG_DFL);
  EXPECT_EQ(sched_test::thrown_by([] { signals({SIGKILL}); }),
            "weft::signals: signal 9 cannot be caught");
}

// All that there is to know about what each signal does.
std::vector<struct sigaction> dispositions() {
  std::vector<struct sigaction> all(65);
  for (int sig = 1; sig <= 64; ++sig)
    ::sigaction(sig, nullptr, &all[static_cast<std::size_t>(sig)]);
  return all;
}
bool same(const struct sigaction& a, const struct sigaction& b) {
  constexpr int libcs = 0x0400'0000;  // SA_RESTORER, with everything that it has set
  return a.sa_handler == b.sa_handler && (a.sa_flags | libcs) == (b.sa_flags | libcs);
}

TEST_F(SignalTest, AnEmptyListIsEverySignal) {
  const with_handler mine(SIGUSR1, count);
  const with_handler ignored(SIGUSR2, SIG_IGN);
  everywhere([] {
    const std::vector<struct sigaction> before = dispositions();
    signals all({});
    const signals one({SIGWINCH});
    const std::vector<struct sigaction> during = dispositions();
    for (const int sig :
         {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGURG}) {
      const auto i = static_cast<std::size_t>(sig);
      EXPECT_TRUE(same(before[i], during[i])) << sig;
    }
    // An emulator has none of the machine's left for the last two, and does not send them.
    const int last = SIGRTMAX - (test::under_emulator ? 2 : 0);
    int n = 0;
    for (int sig = 1; sig <= last; ++sig) {
      const auto i = static_cast<std::size_t>(sig);
      if (same(before[i], during[i])) continue;
      send(sig);
      EXPECT_EQ(all.c.recv(), sig);
      ++n;
    }
    EXPECT_EQ(n, 31 - 10 + last - SIGRTMIN + 1);
    EXPECT_EQ(one.c.recv(), SIGWINCH);
    all.stop();
    const std::vector<struct sigaction> after = dispositions();
    for (std::size_t i = 1; i <= 64; ++i)
      EXPECT_TRUE(i == SIGWINCH || same(before[i], after[i])) << i;
    send(SIGWINCH);
    EXPECT_EQ(one.c.recv(), SIGWINCH);
    EXPECT_EQ(all.c.len(), 0U);
  });
}

TEST_F(SignalTest, AnEmptyListCancelsAContextByAnySignal) {
  everywhere([] {
    const std::vector<struct sigaction> before = dispositions();
    const auto [ctx, cancel] = with_signals(background(), {});
    send(SIGTERM);
    ctx.done().recv();
    try {
      std::rethrow_exception(ctx.cause());
    } catch (const signal_received& e) {
      EXPECT_EQ(e.signal(), SIGTERM);
    }
    cancel();
    const std::vector<struct sigaction> after = dispositions();
    for (std::size_t i = 1; i <= 64; ++i) EXPECT_TRUE(same(before[i], after[i])) << i;
  });
}

TEST_F(SignalTest, SelectedAmongOthers) {
  run_on_each([] {
    const signals s({SIGUSR1});
    const chan<int> jobs;
    go([] {
      sleep_for(2ms);
      send(SIGUSR1);
    });
    int got = 0;
    EXPECT_EQ(select(recv(jobs), recv(s.c, [&](std::optional<int> v) { got = *v; })), 1);
    EXPECT_EQ(got, SIGUSR1);
  });
}

// qemu 7.2 reads a disposition twice when it delivers a signal, and jumps to SIG_IGN if another
// thread has just set that (so does a program of twenty lines without us).
TEST_F(SignalTest, ManyComeAndGoWhileSignalsArrive) {
  const auto before = test::under_emulator ? [](int) {} : SIG_IGN;
  const with_handler ignored(SIGUSR1, before);
  std::atomic<bool> over{false};
  std::thread sender([&] {
    while (!over) {
      send(SIGUSR1);
      std::this_thread::yield();
    }
  });
  run_on_each([] {
    scope s;
    for (int i = 0; i < 4; ++i) {
      s.go([] {
        for (int n = 0; n < sched_test::scaled(100); ++n) {
          signals mine({SIGUSR1});
          mine.c.recv();
          mine.stop();
          const std::size_t left = mine.c.len();
          yield();
          EXPECT_EQ(mine.c.len(), left);
        }
      });
    }
    s.wait();
  });
  over = true;
  sender.join();
  EXPECT_EQ(disposition(SIGUSR1), before);
}

// -- contexts

// The new one has just told the service thread, which takes the signal under TSan. Its handler must
// not meet it in an access to what they share: TSan held a lock for that.
TEST_F(SignalTest, ArrivesWhileTheServiceThreadIsAtWork) {
  run_on_each([] {
    for (int i = 0; i < test::full_or(1000, 300); ++i) {
      const signals s({SIGUSR1});
      ASSERT_EQ(::raise(SIGUSR1), 0);
      int got = 0;
      ASSERT_EQ(s.c.recv_for(got, test::patience), recv_status::ok) << "in round " << i;
    }
  });
}

TEST_F(SignalTest, ASignalCancelsTheContextAndIsItsCause) {
  everywhere([] {
    signals beside({SIGTERM});
    const auto [ctx, cancel] = with_signals(background(), {SIGTERM, SIGUSR1});
    const auto [below, cancel_below] = with_cancel(ctx);
    EXPECT_FALSE(ctx.err());
    send(SIGTERM);
    ctx.done().recv();
    EXPECT_EQ(ctx.err(), errc::canceled);
    EXPECT_EQ(below.err(), errc::canceled);
    try {
      std::rethrow_exception(ctx.cause());
    } catch (const signal_received& e) {
      EXPECT_EQ(e.signal(), SIGTERM);
      EXPECT_STREQ(e.what(), "terminated signal received");
    }
    EXPECT_EQ(beside.c.recv(), SIGTERM);
    beside.stop();
    EXPECT_NE(disposition(SIGTERM), SIG_DFL);  // a second one does not kill
    cancel();
    EXPECT_EQ(disposition(SIGTERM), SIG_DFL);
    EXPECT_EQ(disposition(SIGUSR1), SIG_DFL);
  });
}

TEST_F(SignalTest, CancellingLetsTheSignalsGo) {
  everywhere([] {
    const auto [parent, cancel_parent] = with_cancel(background());
    const auto [a, cancel_a] = with_signals(parent, {SIGUSR1});
    const auto [b, cancel_b] = with_signals(parent, {SIGUSR2});
    cancel_a();
    EXPECT_EQ(a.err(), errc::canceled);
    EXPECT_EQ(disposition(SIGUSR1), SIG_DFL);
    EXPECT_NE(disposition(SIGUSR2), SIG_DFL);
    cancel_parent();
    EXPECT_EQ(b.err(), errc::canceled);
    EXPECT_EQ(disposition(SIGUSR2), SIG_DFL);
    const auto [late, cancel_late] = with_signals(parent, {SIGUSR1});
    EXPECT_EQ(late.err(), errc::canceled);
    EXPECT_EQ(disposition(SIGUSR1), SIG_DFL);
  });
}

TEST_F(SignalTest, ACancelledOneDoesNotKeepASignalFromTheOthers) {
  const auto [a, cancel_a] = with_signals(background(), {SIGUSR1});
  const signals s({SIGUSR1});
  cancel_a();
  send(SIGUSR1);
  EXPECT_EQ(s.c.recv(), SIGUSR1);
}

TEST_F(SignalTest, TheLastHandleLetsTheSignalsGo) {
  { const context dropped = with_signals(background(), {SIGUSR1}).first; }
  EXPECT_EQ(disposition(SIGUSR1), SIG_DFL);
}

TEST_F(SignalTest, TellsThoseWhoHaveNothingButDone) {
  everywhere([] {
    const recv_chan<void> done = with_signals(background(), {SIGUSR1}).first.done();
    const recv_chan<void> below =
        with_cancel(with_signals(background(), {SIGUSR1}).first).first.done();
    send(SIGUSR1);
    done.recv();
    below.recv();
    for (int i = 0; disposition(SIGUSR1) != SIG_DFL && i < 10'000; ++i) sleep_for(1ms);
    EXPECT_EQ(disposition(SIGUSR1), SIG_DFL);  // and let go then
    {
      const auto [ctx, cancel] = with_signals(background(), {SIGUSR1});
      EXPECT_FALSE(ctx.done().closed());
    }
    EXPECT_EQ(disposition(SIGUSR1), SIG_DFL);  // nobody waits
  });
}

TEST_F(SignalTest, AnAncestorsDeadlineLetsTheSignalsGo) {
  run_on_each([] {  // there it is cancelled in scheduler context
    const auto [parent, cancel_parent] = with_timeout(background(), 2ms);
    const auto [ctx, cancel] = with_signals(parent, {SIGUSR1});
    ctx.done().recv();
    EXPECT_EQ(ctx.err(), errc::deadline_exceeded);
    EXPECT_TRUE(eventually([] { return disposition(SIGUSR1) == SIG_DFL; }));
  });
}

TEST_F(SignalTest, ANilParentIsRefused) {
  EXPECT_THROW((void)with_signals(context(), {SIGUSR1}), std::invalid_argument);
}

}  // namespace
}  // namespace weft::signal_test
