// SPDX-License-Identifier: Apache-2.0
// os/thread.h: a started thread has its argument, its name, its signal mask, and leaves the
// starter's alone.
#include "os/thread.h"

#include <csignal>
#include <gtest/gtest.h>
#include <pthread.h>
#include <string>
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
