// SPDX-License-Identifier: Apache-2.0
// os/thread.h: a started thread has its argument, its name, its signal mask, and leaves the
// starter's alone.
#include "os/thread.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <gtest/gtest.h>
#include <pthread.h>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "os/note.h"

namespace weft::rt {
namespace {

struct report {
  note done;
  pid_t tid = 0;
  std::string name;
  sigset_t mask;
};

void look_around(void* arg) {
  auto* r = static_cast<report*>(arg);
  r->tid = thread_id();
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  r->name = name;
  pthread_sigmask(SIG_SETMASK, nullptr, &r->mask);
  r->done.wake();
}

// One that sleeps in read(2): the kernel names the call, and where its user code stands.
TEST(Thread, WhereOneSleeps) {
#if defined(WEFT_TEST_EMULATED)
  GTEST_SKIP() << "the kernel tells of the emulator's calls and registers";
#endif
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::atomic<pid_t> tid{0};
  std::atomic<std::uintptr_t> frame{0};
  std::thread t([&] {
    frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    tid = thread_id();
    char c;
    EXPECT_EQ(::read(ends[0], &c, 1), 1);
  });
  while (tid == 0) std::this_thread::yield();
  asleep_in a;
  for (int i = 0; i < 10'000 && a.call < 0; ++i) {
    a = where_asleep(tid);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (a.call != asleep_in::unknown) {  // some kernels are built without it
    EXPECT_EQ(a.call, SYS_read);
    EXPECT_EQ(where_asleep(tid), a);
    EXPECT_LT(a.sp, frame);
    EXPECT_GT(a.sp + 64 * 1024, frame);
    EXPECT_NE(a.pc, 0U);
  }
  EXPECT_EQ(::write(ends[1], "x", 1), 1);
  t.join();
  EXPECT_EQ(where_asleep(tid).call, asleep_in::unknown);  // gone
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Thread, StartsWithArgumentNameAndMask) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  report r;
  ASSERT_EQ(start_thread(look_around, &r, "weft-test"), 0);
  r.done.sleep();
  EXPECT_NE(r.tid, thread_id());
  EXPECT_NE(r.tid, 0);
  EXPECT_EQ(r.name, "weft-test");
  for (int sig : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    EXPECT_EQ(sigismember(&r.mask, sig), 0) << sig;
  for (int sig : {SIGINT, SIGTERM, SIGUSR1, SIGURG, SIGCHLD, SIGALRM})
    EXPECT_EQ(sigismember(&r.mask, sig), 1) << sig;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int sig = 1; sig < NSIG; ++sig)
    EXPECT_EQ(sigismember(&before, sig), sigismember(&after, sig)) << sig;
}

TEST(Thread, IdIsTheKernels) { EXPECT_EQ(thread_id(), ::getpid()); }  // of the main thread

}  // namespace
}  // namespace weft::rt
