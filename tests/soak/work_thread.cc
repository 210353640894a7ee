// SPDX-License-Identifier: Apache-2.0
// Threads: calls that block them, announced or not, goroutines that keep theirs, plain threads that
// use channels, and hogs, which never call weft and must be stopped by a signal.
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <weft/chan.hpp>
#include <weft/go.hpp>
#include <weft/signal.hpp>
#include <weft/sync.hpp>
#include <weft/thread.hpp>
#include <weft/time.hpp>

#include "soak/soak.h"
#include "support/deep_throw.h"

namespace weft::soak {
namespace {

pid_t tid() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// False if it came back early: no signal of ours may show.
bool nap(std::uint32_t us) {
  const timespec t{0, static_cast<long>(us) * 1000};
  return ::nanosleep(&t, nullptr) == 0;
}

struct raw_pipe {
  int fd[2];
  raw_pipe() {
    if (::pipe2(fd, O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "pipe");
  }
  raw_pipe(const raw_pipe&) = delete;
  raw_pipe& operator=(const raw_pipe&) = delete;
  ~raw_pipe() {
    ::close(fd[0]);
    ::close(fd[1]);
  }
};

// Naps, and a read that waits for a goroutine to write. A call that sits on its P would stop that.
template <class Call>
std::uint64_t calls(lane& l, Call call) {
  std::atomic<int> early{0}, wrong_reads{0};
  wait_group wg;
  const int n = 2 + static_cast<int>(l.r.below(4));
  for (int i = 0; i < n; ++i) {
    wg.go([&, us = l.r.below(2000)] {
      call([&] {
        if (!nap(us)) ++early;
      });
    });
  }
  const raw_pipe p;
  wg.go([&] {
    call([&] {
      std::array<char, 4> b;
      if (::read(p.fd[0], b.data(), b.size()) != 3 || b[2] != 'c') ++wrong_reads;
    });
  });
  if (l.chance(2)) weft::sleep_for(std::chrono::microseconds(l.r.below(500)));
  l.check(::write(p.fd[1], "abc", 3) == 3, "a write to a pipe");
  wg.wait();
  l.check(early == 0, "nanosleep came back early");
  l.check(wrong_reads == 0, "a read from a pipe");
  return static_cast<std::uint64_t>(n) + 1;
}
std::uint64_t announced(lane& l) {
  return calls(l, [](auto f) { weft::blocking(f); });
}
std::uint64_t unannounced(lane& l) {
  return calls(l, [](auto f) { f(); });
}

// TSan knows 8128 threads in all, those that have ended included.
void spare_threads() {
  if (test::under_tsan) weft::sleep_for(100ms);
}

std::uint64_t locked(lane& l) {
  spare_threads();
  std::atomic<int> wrong{0};
  wait_group wg;
  const chan<int> c;
  const bool ends_locked = l.chance(4);
  for (int i = 0; i < 2; ++i) {
    wg.go([&, i] {
      lock_os_thread();
      const pid_t mine = tid();
      for (int k = 0; k < 20; ++k) {
        if (i == 0) {
          c.send(k);
        } else if (c.recv() != k) {
          ++wrong;
        }
        if (k % 5 == 0) weft::yield();
        if (tid() != mine) ++wrong;
      }
      if (i == 0 && ends_locked) return;  // and its thread with it
      unlock_os_thread();
    });
  }
  wg.wait();
  l.check(wrong == 0, "a locked goroutine on another thread");
  return 40;
}

std::uint64_t plain_threads(lane& l) {
  spare_threads();
  const chan<std::uint64_t> to(static_cast<int>(l.r.below(2))), back(2);
  const std::uint32_t n = 1 + l.r.below(2);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < n; ++i) {
    threads.emplace_back([=] {
      for (const std::uint64_t v : to) back.send(v * 2);
    });
  }
  constexpr std::uint64_t values = 50;
  wait_group wg;
  wg.go([&] {
    for (std::uint64_t v = 1; v <= values; ++v) to.send(v);
    to.close();
  });
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < values; ++i) sum += back.recv().value_or(0);
  wg.wait();
  for (std::thread& t : threads) weft::blocking([&t] { t.join(); });
  l.check(sum == values * (values + 1), "the sum over plain threads");
  return 2 * values;
}

// -- hogs: one call of any of them takes well below a millisecond

std::uint64_t collatz(std::uint64_t from, std::uint64_t to) {
  std::uint64_t steps = 0;
  asm volatile("" : "+r"(from));  // each call computes it anew
  for (std::uint64_t n = from; n < to; ++n) {
    for (std::uint64_t x = n; x != 1; ++steps) x = x % 2 == 0 ? x / 2 : 3 * x + 1;
  }
  return steps;
}
bool arithmetic() {
  static const std::uint64_t right = collatz(1, 1000);
  return collatz(1, 1000) == right;
}

bool allocation() {
  constexpr std::size_t n = 32;
  char* kept[n];
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t size = i == n - 1 ? 200 * 1024 : 1100 + (i * 977) % 3000;
    kept[i] = static_cast<char*>(std::malloc(size));
    kept[i][0] = kept[i][size - 1] = static_cast<char>(i);
  }
  bool right = true;
  for (std::size_t i = 0; i < n; ++i) {
    right = right && kept[i][0] == static_cast<char>(i);
    std::free(kept[i]);
  }
  return right;
}

bool exceptions() {
  int cleaned = 0;
  try {
    test::throw_from(10, &cleaned);
  } catch (const std::exception&) {
    return cleaned == 11;
  }
  return false;
}

bool formatting() {
  std::ostringstream os;
  os << "hog " << 17 << ' ' << std::hex << 0xbeef << ' ' << 0.125;
  return os.str() == "hog 17 beef 0.125";
}

// A burst: more of them than Ps, for longer than a slice; then the others have the machine.
std::uint64_t hogs(lane& l) {
  static constexpr bool (*kinds[])() = {arithmetic, allocation, exceptions, formatting};
  const int n = std::min(weft::procs() + 1, 6);
  const std::int64_t until = nanotime() + (15 + static_cast<std::int64_t>(l.r.below(25))) * ms;
  std::atomic<std::uint64_t> done{0};
  std::atomic<int> wrong{0};
  wait_group wg;
  for (int i = 0; i < n; ++i) {
    wg.go([&, work = kinds[l.r.below(std::size(kinds))]] {
      std::uint64_t mine = 0;
      do {
        if (!work()) ++wrong;
        ++mine;
      } while (nanotime() < until);
      done += mine;
    });
  }
  wg.wait();
  l.check(wrong == 0, "what a hog computed");
  weft::sleep_for(std::chrono::milliseconds(l.r.below(120)));
  return done;
}

// A signal that somebody wants arrives; the one by which we preempt has nothing to do with it.
std::uint64_t os_signals(lane& l) {
  signals s({SIGUSR1});
  // To this thread: one that sleeps in a call of another lane would come back early, and rightly.
  ::raise(SIGUSR1);
  const std::optional<int> got = s.c.recv();
  l.check(got == SIGUSR1, "a signal of the system");
  weft::sleep_for(std::chrono::milliseconds(1 + l.r.below(5)));
  return 1;
}

}  // namespace

std::span<const workload> thread_workloads() {
  static constexpr workload all[] = {
      {"blocking", 2, announced},
      {"unannounced", 2, unannounced},
      {"locked", 1, locked},
      {"threads", 1, plain_threads},
      {"hogs", 1, hogs},
      {"signal", 1, os_signals},
      {"outsider", 1, outsider_step},
  };
  return all;
}

}  // namespace weft::soak
