// SPDX-License-Identifier: Apache-2.0
// Every call that can fail, made to fail (base/chaos.h, faults): once, from the n-th on, one in so
// many. Each ends in a clear error, the program's or the runtime's, or is absorbed; a hang is the
// limit of run_crash, a crash is a signal, a lost goroutine is "lost" in the program's own words.
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/chaos.h"
#include "support/process.h"

namespace weft::test {
namespace {

outcome run_faults(const std::string& faults, const std::vector<std::string>& parts) {
  const std::string was = rt::chaos::setting();
  ::setenv("WEFT_CHAOS", ("seed=1,only=none,faults=" + faults).c_str(), 1);
  outcome o = run_crash("chaos_faults", parts);
  ::setenv("WEFT_CHAOS", was.c_str(), 1);
  return o;
}

const std::vector<std::string> everything{"goroutines", "calls", "network",
                                          "outsider",   "pipes", "files"};

::testing::AssertionResult absorbed(const outcome& o) {
  if (o.status == 0 && o.out == "done\n") return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << o;
}
// What the program was told.
::testing::AssertionResult reported(const outcome& o, const std::string& what) {
  if (o.status == 3 && o.out.starts_with("error: ") && o.out.find(what) != o.out.npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "not reported: " << what << '\n' << o;
}
// What the runtime ended with.
::testing::AssertionResult fatal(const outcome& o, const std::string& what) {
  if (o.status == 2 && o.err.find(what) != o.err.npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "not fatal: " << what << '\n' << o;
}

TEST(Faults, NoneIsAbsorbed) { EXPECT_TRUE(absorbed(run_faults("mmap:0", everything))); }

// -- memory

TEST(Faults, MmapEachOfTheFirst) {
  for (int n = 1; n <= 40; ++n) {
    const outcome o = run_faults("mmap:" + std::to_string(n) + ":ENOMEM", {"goroutines"});
    // A chunk of stacks that does not fit is tried again at half its size.
    EXPECT_TRUE(absorbed(o) || fatal(o, "fatal error: out of memory") ||
                fatal(o, "fatal error: runtime: no memory for a signal stack"))
        << "mmap " << n;
  }
}

TEST(Faults, MmapForGood) {
  const outcome o = run_faults("mmap:30-:ENOMEM", {"goroutines"});
  EXPECT_TRUE(fatal(o, "fatal error: "));
  EXPECT_NE(o.err.find("memory"), o.err.npos) << o;
}

TEST(Faults, StacksWithoutMemoryLock) {  // EAGAIN: RLIMIT_MEMLOCK
  const outcome o = run_faults("mmap:12:EAGAIN", {"goroutines"});
  EXPECT_TRUE(absorbed(o) || fatal(o, "memory")) << o;
}

TEST(Faults, SignalStack) {
  EXPECT_TRUE(fatal(run_faults("signal_stack:2", {"goroutines"}),
                    "fatal error: runtime: no memory for a signal stack: errno 12"));
}

TEST(Faults, MprotectEachOfTheFirst) {
  for (int n = 1; n <= 12; ++n) {
    const outcome o = run_faults("mprotect:" + std::to_string(n), {"goroutines"});
    EXPECT_TRUE(absorbed(o) || fatal(o, "fatal error: runtime: no guard for a signal stack") ||
                fatal(o, "fatal error: out of memory for goroutine stacks"))
        << "mprotect " << n << '\n'
        << o;
  }
}

TEST(Faults, AdviceIsOnlyAdvice) {
  for (const char* f :
       {"madvise:1-:EAGAIN", "madvise:1-:EINVAL", "madvise:20%:EINTR", "process_madvise:1-:EPERM",
        "process_madvise:30%:EINTR", "process_madvise:1-:ENOSYS+madvise:10%", "munmap:1-"}) {
    EXPECT_TRUE(absorbed(run_faults(f, everything))) << f;
  }
}

// -- threads

TEST(Faults, AThreadThatCannotBeMadeAtOnce) {
  for (int n = 1; n <= 8; ++n)
    EXPECT_TRUE(absorbed(run_faults("pthread_create:" + std::to_string(n), everything))) << n;
  EXPECT_TRUE(absorbed(run_faults("pthread_create:30%", everything)));
}

TEST(Faults, TheRuntimesOwnThreads) {
  for (int n = 1; n <= 3; ++n) {
    const outcome o = run_faults("pthread_create:" + std::to_string(n) + "-", {"goroutines"});
    EXPECT_TRUE(fatal(o, "fatal error: newosproc") &&
                o.err.starts_with("runtime: failed to create new OS thread (have ") &&
                o.err.find(" already; errno=11)\n") != o.err.npos)
        << n << o;
  }
}

// Those that there are do what can be done; a P that needs one more says so.
TEST(Faults, NoThreadAnyMore) {
  for (int n = 4; n <= 7; ++n) {
    const outcome o =
        run_faults("pthread_create:" + std::to_string(n) + "-", {"goroutines", "calls"});
    EXPECT_TRUE(absorbed(o) ||
                (fatal(o, "fatal error: newosproc") && o.err.find("ulimit -u") != o.err.npos))
        << n << o;
  }
}

TEST(Faults, NoTimerForAThread) {
  EXPECT_TRUE(absorbed(run_faults("timer_create:1-", everything)));
  EXPECT_TRUE(absorbed(run_faults("timer_create:50%", everything)));
}

TEST(Faults, NoMembarrier) { EXPECT_TRUE(absorbed(run_faults("membarrier:1-", everything))); }

// -- descriptors

TEST(Faults, ThePollerCannotBeOpened) {
  for (const char* f : {"epoll_create:1:EMFILE", "eventfd:1:EMFILE"}) {
    EXPECT_TRUE(reported(run_faults(f, {"network"}), "too many open files")) << f;
  }
  EXPECT_TRUE(reported(run_faults("epoll_create:1-:ENFILE", {"network"}), "too many open files"));
}

TEST(Faults, ADescriptorCannotBeWatched) {
  for (int n = 1; n <= 10; ++n) {
    const outcome o = run_faults("epoll_ctl:" + std::to_string(n) + ":ENOSPC", {"network"});
    EXPECT_TRUE(reported(o, "no space left on device")) << n;
  }
  EXPECT_TRUE(reported(run_faults("epoll_ctl:1-:ENOMEM", {"pipes"}), "cannot allocate memory"));
}

TEST(Faults, ThePollerIsInterrupted) {
  for (const char* f : {"epoll_wait:20%", "epoll_wait:80%"})
    EXPECT_TRUE(absorbed(run_faults(f, everything))) << f;
}

TEST(Faults, APlainThreadWithoutAnEventfd) {
  EXPECT_TRUE(absorbed(run_faults("eventfd:2-:EMFILE", everything)));
}

TEST(Faults, NoSocketNoPipe) {
  EXPECT_TRUE(reported(run_faults("socket:1:EMFILE", {"network"}), "too many open files"));
  EXPECT_TRUE(reported(run_faults("socket:3:ENOBUFS", {"network"}), "no buffer space"));
  EXPECT_TRUE(reported(run_faults("pipe:1:ENFILE", {"pipes"}), "too many open files in system"));
}

TEST(Faults, AcceptFails) {
  for (int n = 1; n <= 4; ++n) {
    const std::string f = "accept:" + std::to_string(n);
    EXPECT_TRUE(reported(run_faults(f + ":EMFILE", {"network"}), "too many open files")) << n;
    EXPECT_TRUE(absorbed(run_faults(f + ":EINTR", {"network"}))) << n;
    EXPECT_TRUE(absorbed(run_faults(f + ":ECONNABORTED", {"network"}))) << n;
  }
  EXPECT_TRUE(absorbed(run_faults("accept:30%:ECONNABORTED", everything)));
}

// Without a ring the file is a thread's; with one that is full for a while, it is asked again.
TEST(Faults, TheRing) {
  for (const char* f : {"io_uring_setup:1:EPERM", "io_uring_setup:1-:ENOMEM", "eventfd:1:EMFILE",
                        "io_uring_enter:1:EAGAIN", "io_uring_enter:40%:EAGAIN",
                        "io_uring_enter:60%:EINTR", "pthread_create:4-:EAGAIN"}) {
    const outcome o = run_faults(f, {"files"});
    EXPECT_TRUE(absorbed(o) || (std::string(f).starts_with("pthread") && fatal(o, "newosproc")))
        << f << o;
  }
}

// -- everything at once, and delays too

TEST(Faults, AllOfThemUnderDelays) {
  const std::string was = rt::chaos::setting();
  for (int seed = 1; seed <= 12; ++seed) {
    ::setenv("WEFT_CHAOS",
             ("seed=" + std::to_string(seed) +
              ",faults=madvise:5%+process_madvise:5%+epoll_wait:10%+timer_create:20%+munmap:20%"
              "+pthread_create:10%+accept:5%:ECONNABORTED+eventfd:2-")
                 .c_str(),
             1);
    const outcome o = run_crash("chaos_faults", everything);
    EXPECT_TRUE(absorbed(o)) << "seed " << seed;
  }
  ::setenv("WEFT_CHAOS", was.c_str(), 1);
}

// -- the settings themselves

TEST(Settings, WhatCannotBeReadIsNamed) {
  const std::string was = rt::chaos::setting();
  for (const char* bad : {"seed=", "sed=1", "seed=x", "faults=mmap", "faults=nmap:1",
                          "faults=mmap:1:EWHAT", "faults=mmap:x"}) {
    ::setenv("WEFT_CHAOS", bad, 1);
    const outcome o = run_crash("chaos_faults", {"pipes"});
    EXPECT_EQ(o.status, 2) << bad;
    EXPECT_TRUE(o.err.starts_with("WEFT_CHAOS: cannot read '")) << bad << o;
  }
  ::setenv("WEFT_CHAOS", "off", 1);
  EXPECT_TRUE(absorbed(run_crash("chaos_faults", everything)));
  ::setenv("WEFT_CHAOS", was.c_str(), 1);
}

// Somewhere something happens; and nothing where the setting says so.
TEST(Settings, OnlyWhatWasAskedFor) {
  const std::string was = rt::chaos::setting();
  rt::chaos::configure("seed=3,only=park.status,faults=socket:2");
  std::size_t acted = 0;
  for (int i = 0; i < 20'000; ++i) {
    rt::chaos::point("runq.steal");
    rt::chaos::point("park.status");
    acted += rt::chaos::flip("force.steal") ? 1U : 0U;
  }
  EXPECT_EQ(rt::chaos::count_of("runq.steal").acted, 0U);
  EXPECT_EQ(acted, 0U);
  EXPECT_EQ(rt::chaos::fault("socket"), 0);
  EXPECT_NE(rt::chaos::fault("socket"), 0);
  EXPECT_EQ(rt::chaos::fault("socket"), 0);
  EXPECT_EQ(rt::chaos::count_of_fault("socket").acted, 1U);
  rt::chaos::configure(was.c_str());
}

}  // namespace
}  // namespace weft::test
