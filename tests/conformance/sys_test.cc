// SPDX-License-Identifier: Apache-2.0
// SYS: system calls, announced and not. SYS-01 and SYS-04 are in tests/crash; SYS-07 is in
// signal_test.cc and tests/crash/signal_test.cc.
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mutex>
#include <netdb.h>
#include <poll.h>
#include <string>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "sched/sched.h"
#include "support/runtime.h"
#include "weft/chan.hpp"
#include "weft/sync.hpp"
#include "weft/thread.hpp"
#include "weft/time.hpp"

namespace weft::test {
namespace {

struct silent_pipe {
  int fd[2] = {-1, -1};
  silent_pipe() { EXPECT_EQ(::pipe2(fd, O_CLOEXEC), 0); }
  ~silent_pipe() {
    ::close(fd[0]);
    if (fd[1] >= 0) ::close(fd[1]);
  }
  void hang_up() {
    ::close(fd[1]);
    fd[1] = -1;
  }
};

// The others are not held up: n goroutines do a round of work each within the limit.
void others_run_on(int n = 100) {
  const auto start = steady::now();
  std::atomic<int> done{0};
  scope s;
  for (int i = 0; i < n; ++i) {
    s.go([&] {
      yield();
      done.fetch_add(1);
    });
  }
  s.wait();
  EXPECT_EQ(done.load(), n);
  EXPECT_LT(steady::now() - start, 5s);
}

// -- SYS-02

TEST(Conformance, SYS_02_goroutines_in_raw_reads_leave_every_p_usable) {
  for (bool announced : {true, false}) {
    for (int procs : {1, 2, 4}) {
      SCOPED_TRACE(::testing::Message() << "procs " << procs << (announced ? ", announced" : ""));
      run_clean(with_procs(procs), [&] {
        silent_pipe p;
        std::atomic<int> in{0}, out{0};
        scope s;
        for (int i = 0; i < 10; ++i) {
          s.go([&] {
            char c;
            in.fetch_add(1);
            const ssize_t n = announced ? blocking([&] { return ::read(p.fd[0], &c, 1); })
                                        : ::read(p.fd[0], &c, 1);
            EXPECT_EQ(n, 0);
            out.fetch_add(1);
          });
        }
        ASSERT_TRUE(eventually([&] { return in.load() == 10; }));
        others_run_on();
        EXPECT_EQ(out.load(), 0);
        EXPECT_EQ(debug::audit(), 0);
        p.hang_up();
        s.wait();
      });
    }
  }
}

// Two that alternate a sleep in the kernel with a hand-off overlap: not twice the sum of all.
TEST(Conformance, SYS_02_calls_of_two_goroutines_overlap) {
  run_clean(with_procs(2), [] {
    constexpr int rounds = 200;
    chan<int> a(1), b(1);
    const auto play = [](const chan<int>& in, const chan<int>& out) {
      for (int i = 0; i < rounds; ++i) {
        blocking([] { ::usleep(100); });
        out.send(i);
        in.recv();
      }
    };
    const auto start = steady::now();
    scope s;
    s.go([&] { play(a, b); });
    s.go([&] { play(b, a); });
    s.wait();
    const auto took = steady::now() - start;
    EXPECT_GT(took, rounds * 100us);
    RecordProperty("us", static_cast<int>(took / 1us));
  });
}

TEST(Conformance, SYS_02_blocking_passes_values_and_exceptions) {
  run_clean(with_procs(2), [] {
    EXPECT_EQ(blocking([] { return 7; }), 7);
    int x = 1;
    blocking([&]() -> int& { return x; }) = 5;
    EXPECT_EQ(x, 5);
    EXPECT_THROW(blocking([] { throw std::runtime_error("x"); }), std::runtime_error);
    EXPECT_EQ(blocking([] { return blocking([] { return 3; }) + 1; }), 4);
    // Uses weft inside.
    chan<int> c;
    go([&] { c.send(9); });
    EXPECT_EQ(blocking([&] { return *c.recv(); }), 9);
    EXPECT_EQ(blocking([] { return std::make_unique<int>(8); }).operator*(), 8);
  });
  EXPECT_EQ(blocking([] { return 1; }), 1);  // a plain thread
}

TEST(Conformance, SYS_02_a_stop_does_not_wait_for_a_call) {
  for (int procs : {1, 2}) {
    run_clean(with_procs(procs), [] {
      silent_pipe p;
      std::atomic<bool> in{false};
      scope s;
      s.go([&] {
        char c;
        blocking([&] {
          in.store(true);
          return ::read(p.fd[0], &c, 1);
        });
      });
      ASSERT_TRUE(eventually([&] { return in.load(); }));
      const auto start = steady::now();
      for (int i = 0; i < 10; ++i) EXPECT_EQ(debug::audit(), 0);
      EXPECT_LT(steady::now() - start, 5s);
      p.hang_up();
      s.wait();
    });
  }
}

// -- blocking calls that nobody has announced: each costs the others next to nothing

template <class Take, class Block, class Release>
void one_is_stuck(Take take, Block block, Release release) {
  for (int procs : {1, 2}) {
    SCOPED_TRACE(procs);
    take();
    run_clean(with_procs(procs), [&] {
      std::atomic<bool> in{false}, out{false};
      scope s;
      s.go([&] {
        in.store(true);
        block();
        out.store(true);
      });
      ASSERT_TRUE(eventually([&] { return in.load(); }));
      others_run_on(full_or(1000, 200));
      EXPECT_FALSE(out.load());
      release();
      s.wait();
      EXPECT_TRUE(out.load());
    });
  }
}

TEST(Conformance, SYS_stuck_in_a_std_mutex) {
  std::mutex m;
  std::thread holder;
  chan<void> held, let_go;
  one_is_stuck(
      [&] {
        holder = std::thread([&] {
          const std::lock_guard lock(m);
          held.send();
          let_go.recv();
        });
        held.recv();
      },
      [&] { const std::lock_guard lock(m); },
      [&] {
        let_go.send();
        holder.join();
      });
}

TEST(Conformance, SYS_stuck_in_a_std_condition_variable) {
  std::mutex m;
  std::condition_variable cv;
  bool go_on = false;
  one_is_stuck([&] { go_on = false; },
               [&] {
                 std::unique_lock lock(m);
                 cv.wait(lock, [&] { return go_on; });
               },
               [&] {
                 const std::lock_guard lock(m);
                 go_on = true;
                 cv.notify_all();
               });
}

TEST(Conformance, SYS_stuck_in_flock) {
  char path[] = "/tmp/weft-flock-XXXXXX";
  const int a = ::mkstemp(path);
  const int b = ::open(path, O_RDWR | O_CLOEXEC);
  one_is_stuck([&] { ASSERT_EQ(::flock(a, LOCK_EX), 0); },
               [&] {
                 EXPECT_EQ(::flock(b, LOCK_EX), 0);
                 EXPECT_EQ(::flock(b, LOCK_UN), 0);
               },
               [&] { EXPECT_EQ(::flock(a, LOCK_UN), 0); });
  ::close(a);
  ::close(b);
  ::unlink(path);
}

// What the caller sees of its call is what it would have seen alone: no EINTR, no short count, no
// shorter or longer sleep.
TEST(Conformance, SYS_nobody_notices_that_its_p_was_taken) {
  run_clean(with_procs(2), [] {
    std::atomic<bool> stop{false};
    std::atomic<int> eintr{0}, wrong{0}, calls{0};
    scope hogs, s;
    for (int i = 0; i < 3; ++i) {
      hogs.go([&] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    for (int i = 0; i < 8; ++i) {
      s.go([&, i] {
        for (int k = 0; k < 20; ++k) {
          const auto start = steady::now();
          if (::poll(nullptr, 0, 3) != 0) (errno == EINTR ? eintr : wrong).fetch_add(1);
          if (steady::now() - start < 3ms) wrong.fetch_add(1);
          timespec ts{0, 2'000'000};
          if (::nanosleep(&ts, nullptr) != 0) eintr.fetch_add(1);
          calls.fetch_add(1);
          if (i % 2 == 0) yield();
        }
      });
    }
    s.wait();
    stop.store(true);
    hogs.wait();
    EXPECT_EQ(calls.load(), 160);
    EXPECT_EQ(eintr.load(), 0);
    EXPECT_EQ(wrong.load(), 0);
  });
}

// -- a send that nobody has announced: a signal would end it after what it has sent by then

// A stream with little room. One goroutine sends more than that, and its thread sleeps in the call
// until drain(): a signal that comes meanwhile is one that must not come. (A thread that runs
// inside a call looks like one that computes; HACKING.md says what that costs.)
class narrow_stream {
 public:
  narrow_stream() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd_), 0);
    const int least = 0;
    EXPECT_EQ(::setsockopt(fd_[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
  }
  ~narrow_stream() {
    ::close(fd_[0]);
    ::close(fd_[1]);
  }
  narrow_stream(const narrow_stream&) = delete;
  narrow_stream& operator=(const narrow_stream&) = delete;

  // The goroutine's.
  bool send_is_whole() {
    sender_.store(rt::current_m());
    const ssize_t n = ::send(fd_[0], all_.data(), all_.size(), 0);
    sent_.store(n);
    return n == static_cast<ssize_t>(all_.size());
  }
  // The others'. Its thread sleeps with a part sent, or the call is over.
  bool sleeps() const {
    int part = 0;
    const rt::M* m = sender_.load();
    return is_over() || (m != nullptr && ::ioctl(fd_[1], FIONREAD, &part) == 0 && part != 0 &&
                         rt::asleep_in_kernel(m));
  }
  bool lost_its_p() const {
    const rt::M* m = sender_.load();
    return is_over() || (m != nullptr && m->hold.load() == rt::hold_state::detached);
  }
  // All of one send; ready for the next.
  void drain() {
    std::vector<char> part(all_.size());
    std::size_t got = 0;
    while (sent_.load() < 0 || got < static_cast<std::size_t>(sent_.load())) {
      const ssize_t n = ::recv(fd_[1], part.data(), part.size(), MSG_DONTWAIT);
      if (n > 0) got += static_cast<std::size_t>(n);
    }
    sender_.store(nullptr);
    sent_.store(-1);
  }

 private:
  bool is_over() const { return sent_.load() >= 0; }
  int fd_[2] = {-1, -1};
  const std::vector<char> all_ = std::vector<char>(64 * 1024, 'x');
  std::atomic<rt::M*> sender_{nullptr};
  std::atomic<ssize_t> sent_{-1};
};

// It has slept beyond its slice when somebody comes who wants its P: sysmon takes that, and lets it
// sleep.
TEST(Conformance, SYS_a_send_is_whole_though_its_slice_ends) {
  if (!rt::can_detach()) GTEST_SKIP() << "no membarrier";
  std::atomic<int> slept{0};
  for (int k = 0; k < 100 && slept.load() < full_or(10, 3); ++k) {
    narrow_stream stream;
    run_clean(with_procs(1), [&] {
      yield();  // off the first thread, whose P is always asked to give way
      std::atomic<bool> ran{false};
      std::thread other([&] {
        const rt::P* p = rt::p_at(0);
        EXPECT_TRUE(spin_until([&] { return stream.sleeps(); }));
        EXPECT_TRUE(spin_until(
            [&] { return stream.lost_its_p() || p->preempt.load(rt::memory_order_relaxed) != 0; }));
        // On a slow machine main may not wait yet, and has it already.
        if (!stream.lost_its_p()) slept.fetch_add(1);
        const auto flagged = steady::now();  // what sysmon then grants is a millisecond
        EXPECT_TRUE(spin_until([&] { return steady::now() - flagged > 2ms; }));
        go([&] { ran.store(true); });
        EXPECT_TRUE(spin_until([&] { return stream.lost_its_p(); }));
        stream.drain();
      });
      scope s;
      s.go([&] { EXPECT_TRUE(stream.send_is_whole()); });
      s.wait();
      EXPECT_TRUE(eventually([&] { return ran.load(); }));
      other.join();
    });
  }
  EXPECT_GT(slept.load(), 0);
}

// So does one who stops the world.
TEST(Conformance, SYS_a_send_is_whole_though_the_world_stops) {
  if (!rt::can_detach()) GTEST_SKIP() << "no membarrier";
  for (const bool resizes : {false, true}) {
    narrow_stream stream;
    run_clean(with_procs(2), [&] {
      for (int k = 0; k < full_or(50, 10); ++k) {
        bool whole = false;
        scope s;
        s.go([&] { whole = stream.send_is_whole(); });
        EXPECT_TRUE(eventually([&] { return stream.sleeps(); }));
        if (resizes) {
          set_procs(2 + (k + 1) % 2);
        } else {
          EXPECT_EQ(debug::audit(), 0);
        }
        stream.drain();
        s.wait();
        EXPECT_TRUE(whole);
      }
    });
  }
}

// -- SYS-05

TEST(Conformance, SYS_05_children_inherit_a_clean_mask_and_survive_signals) {
  struct sigaction sa = {}, old = {};
  sa.sa_handler = [](int) {};
  sa.sa_flags = SA_RESTART;
  sigaction(SIGWINCH, &sa, &old);
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  run_clean(with_procs(2), [&] {
    std::atomic<bool> stop{false};
    std::thread storm([&] {
      while (!stop.load()) {
        ::kill(::getpid(), SIGWINCH);
        ::usleep(200);
      }
    });
    std::atomic<int> bad{0};
    scope s;
    for (int i = 0; i < 4; ++i) {
      s.go([&] {
        for (int k = 0; k < 5; ++k) {
          const int status = blocking([] {
            return std::system(
                "m=$(sed -n 's/^SigBlk:[[:space:]]*//p' /proc/self/status); "
                "[ $((0x$m & 0x7ffffffffffeffff)) = 0 ]");
          });
          if (status != 0) bad.fetch_add(1);
        }
      });
    }
    s.wait();
    stop.store(true);
    storm.join();
    EXPECT_EQ(bad.load(), 0);
  });
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGURG), sigismember(&after, SIGURG));
  sigaction(SIGWINCH, &old, nullptr);
}

// -- on_system_stack

__attribute__((noinline)) int deep(int n) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(n);
  return n == 0 ? frame[0] : deep(n - 1) + (frame[0] == static_cast<char>(n) ? 1 : 0);
}

int seven() { return 7; }
void nothing() {}

TEST(Conformance, SYS_on_system_stack) {
  run_clean(with_procs(2), [] {
    scope s;
    for (int i = 0; i < 8; ++i) {
      s.go([] {
        for (int k = 0; k < 20; ++k) {
          EXPECT_EQ(on_system_stack([] { return deep(500); }),
                    500);  // 2 MB, a goroutine has 256 KB
          int x = 0;
          on_system_stack([&] { x = 3; });
          EXPECT_EQ(x, 3);
          EXPECT_THROW(on_system_stack([] { throw std::runtime_error("from below"); }),
                       std::runtime_error);
          EXPECT_EQ(on_system_stack([&]() -> int& { return x; }), 3);
          EXPECT_EQ(*on_system_stack([] { return std::make_unique<int>(4); }), 4);
          EXPECT_EQ(on_system_stack([] { return on_system_stack([] { return 5; }); }), 5);
          EXPECT_EQ(on_system_stack(seven), 7);  // a function
          on_system_stack(nothing);
          EXPECT_EQ(on_system_stack([]() -> const std::string { return "8"; }), "8");
          yield();
        }
      });
    }
    s.wait();
  });
  EXPECT_EQ(on_system_stack([] { return 6; }), 6);
}

}  // namespace
}  // namespace weft::test
