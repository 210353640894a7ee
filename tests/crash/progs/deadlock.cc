// SPDX-License-Identifier: Apache-2.0
// DED: programs in which nobody can run any more, and some in which somebody still can.
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <sys/time.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "sched/sched.h"
#include "weft/weft.hpp"

using namespace std::chrono_literals;

namespace {

[[gnu::noinline]] void wait_for_nobody() {
  weft::chan<int> c;
  (void)c.recv();
}

void goexit_with_sleeper() {
  weft::go([] {
    weft::sleep_for(50ms);
    std::puts("slept");
    std::fflush(stdout);
  });
  weft::goexit();
}

// A plain thread that will send: no deadlock, though every goroutine sleeps meanwhile.
int thread_will_send() {
  int got = 0;
  weft::run([&] {
    weft::chan<int> c;
    std::thread t([c] {
      std::this_thread::sleep_for(300ms);
      c.send(7);
    });
    got = *c.recv();
    t.join();
  });
  return got;
}

// ... and one that ends without having sent.
void thread_ends() {
  weft::chan<int> c;
  std::thread([c] { std::this_thread::sleep_for(100ms); }).detach();
  (void)c.recv();
}

// Both sides wait for the other: the thread is inside weft.
void thread_waits_too() {
  static weft::chan<int> a, b;
  std::thread([] { (void)a.recv(); }).detach();
  (void)b.recv();
}

// Each thread wakes the next and ends; in between all goroutines sleep, and for an instant the only
// one who can run is a thread that has been woken and not yet scheduled.
int relay() {
  return weft::run([] {
    for (int round = 0; round < 200; ++round) {
      weft::chan<int> in, out;
      std::thread last([=] { out.send(*in.recv()); });
      std::thread first([=] { in.send(1); });
      (void)out.recv();
      first.join();
      last.join();
    }
  });
}

int timer_pending() {
  weft::run([] {
    weft::chan<int> c;
    weft::after_func(200ms, [c] { c.send(1); });
    (void)c.recv();
  });
  return 0;
}

// The kernel will send one: whoever waits for it is not stuck.
int signal_comes() {
  int got = 0;
  weft::run([&] {
    const weft::signals s({SIGALRM});
    const itimerval in{{0, 0}, {0, 300'000}};
    ::setitimer(ITIMER_REAL, &in, nullptr);
    got = *s.c.recv();
  });
  return got;
}

// The service thread of signals is no hope once nobody wants any.
void signals_are_stopped() {
  weft::signals s({SIGUSR1});
  const auto [ctx, cancel] = weft::with_signals(weft::background(), {SIGUSR1});
  s.stop();
  cancel();
  wait_for_nobody();
}

// The last signal is handed out, and then nobody can run.
void stuck_after_a_signal() {
  auto [ctx, cancel] = weft::with_signals(weft::background(), {SIGUSR1});
  weft::go([ctx = ctx, cancel = cancel] {
    ctx.done().recv();
    cancel();
  });
  ::kill(::getpid(), SIGUSR1);
  wait_for_nobody();
}

// The one who answers goes on for a moment after its answer: then it, too, must look.
void stuck_after_a_lookup() {
  (void)weft::net::resolve("localhost", "80");
  wait_for_nobody();
}

// Ends the process soon, by no thread that would count.
void exit_soon() {
  std::signal(SIGALRM, [](int) { ::_exit(7); });
  const itimerval soon{{0, 0}, {0, 300'000}};
  ::setitimer(ITIMER_REAL, &soon, nullptr);
}

// Longer than the clock counts: a timer like others all the same.
int sleeps_without_end(std::string_view how) {
  exit_soon();
  return weft::run([how] {
    constexpr auto never = std::chrono::hours::max();
    const weft::chan<int> c;
    int out = 0;
    if (how == "sleep-max") weft::sleep_for(never);
    if (how == "until-max") weft::sleep_until(weft::clock::time_point::max());
    if (how == "after-max") (void)weft::after(never).recv();
    if (how == "select-max") weft::select(weft::recv(c), weft::timeout(never));
    if (how == "recv-max") (void)c.recv_for(out, never);
    if (how == "context-max") {
      const auto [ctx, cancel] = weft::with_timeout(weft::background(), never);
      ctx.done().recv();
    }
  });
}

// Nothing of weft's could wake it, and no thread is there that might: the host has other ways.
int owned_by_a_host() {
  exit_soon();
  weft::config c;
  c.embedded = true;
  return weft::run(c, wait_for_nobody);
}

void stuck_after_a_trace() {
  weft::debug::trace::start("/dev/null");
  weft::debug::trace::stop();
  wait_for_nobody();
}

// A worker of the kernel stays behind, a thread by all accounts: no hope either.
void stuck_after_a_sync() {
  char path[] = "/tmp/weft-sync-XXXXXX";
  const int fd = ::mkstemp(path);
  ::unlink(path);
  const weft::file f = weft::file::adopt(fd, "synced");
  f.sync();
  wait_for_nobody();
}

// The last one who waited for a descriptor has left, and the M that sleeps in the poller for its
// sake has heard nothing of it: it sleeps there for nobody.
void stuck_beside_the_poller() {
  const auto [from, to] = weft::file::pipe();
  weft::go([&r = from] {
    std::array<std::byte, 1> b{};
    std::error_code ec;
    (void)r.read_some(b, ec);
    wait_for_nobody();
  });
  while (weft::rt::sched.in_poller.load() == 0) {
  }
  from.set_deadline(std::chrono::steady_clock::now());  // no event: nothing is closed
  wait_for_nobody();
}

// Goroutine 1 has `a` and wants `b`, which the other one has.
void opposite_order() {
  weft::mutex a, b;
  weft::latch both(2);
  weft::go([&] {
    b.lock();
    both.arrive_and_wait();
    a.lock();
  });
  a.lock();
  both.arrive_and_wait();
  b.lock();
}

// A goroutine of the last run is in a system call when this one begins: it counts until it is out.
int after_a_run() {
  weft::run([] {
    weft::chan<void> begun;
    weft::go([begun] {
      begun.send();
      weft::blocking([] { ::usleep(100'000); });
    });
    begun.recv();
  });
  return weft::run(wait_for_nobody);
}

// Standard error is a pipe that nobody reads.
void break_stderr() {
  int fd[2];
  if (::pipe(fd) != 0) ::_exit(9);
  ::dup2(fd[1], 2);
  ::close(fd[0]);
  ::close(fd[1]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argv[1];
  if (argc > 2 && std::string_view(argv[2]) == "broken-stderr") break_stderr();
  if (how == "receive") return weft::run(wait_for_nobody);
  if (how == "many") {
    return weft::run([] {
      weft::wait_group wg;
      for (int i = 0; i < 3; ++i) wg.go(wait_for_nobody);
      wg.wait();
    });
  }
  if (how == "mutex") {
    return weft::run([] {
      weft::mutex m;
      m.lock();
      m.lock();
    });
  }
  if (how == "unlock") return weft::run([] { weft::mutex().unlock(); });
  if (how == "throw") {
    return weft::run([] {
      weft::go([] { throw 1; });
      weft::sleep_for(60s);
    });
  }
  if (how == "abba") return weft::run(opposite_order);
  if (how == "select") return weft::run([] { weft::select(); });
  if (how == "after-a-run") return after_a_run();
  if (how == "goexit") return weft::run(goexit_with_sleeper);
  if (how == "goexit-others") {
    return weft::run([] {
      weft::go(wait_for_nobody);
      weft::goexit();
    });
  }
  if (how == "thread-sends") return thread_will_send();
  if (how == "thread-ends") return weft::run(thread_ends);
  if (how == "thread-waits-too") return weft::run(thread_waits_too);
  if (how == "relay") return relay();
  if (how == "timer") return timer_pending();
  if (how == "signal-comes") return signal_comes();
  if (how == "signals-stopped") return weft::run(signals_are_stopped);
  if (how == "after-a-signal") return weft::run(stuck_after_a_signal);
  if (how == "beside-the-poller") {
    weft::config two;
    two.procs = 2;
    return weft::run(two, stuck_beside_the_poller);
  }
  if (how == "after-a-sync") return weft::run(stuck_after_a_sync);
  if (how == "after-a-lookup") return weft::run(stuck_after_a_lookup);
  if (how.ends_with("-max")) return sleeps_without_end(how);
  if (how == "embedded") return owned_by_a_host();
  if (how == "after-a-trace") return weft::run(stuck_after_a_trace);
  return 9;
}
