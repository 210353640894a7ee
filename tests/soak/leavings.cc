// SPDX-License-Identifier: Apache-2.0
// What a run leaves behind when main returns: goroutines that wait for a channel, the clock, a
// semaphore, a pipe, that compute, allocate or sit in a call. They never run again. A parked one
// keeps its stack, one that was met on a thread keeps that too, by design (API.md, run): so both
// are counted, and gauges.cc allows for them. They own nothing else, and what they stood at serves
// others afterwards.
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include <weft/chan.hpp>
#include <weft/go.hpp>
#include <weft/sync.hpp>
#include <weft/thread.hpp>
#include <weft/time.hpp>

#include "soak/soak.h"
#include "support/leaks.h"

namespace weft::soak {
namespace {

// Live as long as the process: those who wait here do.
constinit semaphore no_permits{0};
const chan<int>& nothing_comes() {
  static const auto* c = new chan<int>;
  return *c;
}

// Those who run count; who is left behind never again.
struct turns {
  const char* who;
  std::atomic<std::uint64_t> n{0};
  std::uint64_t when_their_run_ended = 0;
  void take() { n.fetch_add(1, std::memory_order_relaxed); }
};
constinit turns computing{"computed"}, allocating{"allocated"}, calling{"sat in calls"},
    yielding{"yielded"};
constexpr turns* all_turns[] = {&computing, &allocating, &calling, &yielding};

void wait_at_a_channel() { (void)nothing_comes().recv(); }
void sleep_long() { weft::sleep_for(1h); }
void wait_at_a_semaphore() { no_permits.acquire(); }
void compute() {
  for (;;) computing.take();
}
void allocate() {
  for (;;) {
    void* p = std::malloc(1000);
    asm volatile("" : : "r"(p) : "memory");
    std::free(p);
    allocating.take();
  }
}
void sit_in_a_call() {
  for (;;) {
    const timespec t{0, 5'000'000};
    weft::blocking([&t] { ::nanosleep(&t, nullptr); });
    calling.take();
  }
}
void take_turns() {
  for (;;) {
    yielding.take();
    weft::yield();
  }
}

}  // namespace

void leavings::leave() {
  for (const turns* t : all_turns) {
    if (t->n != t->when_their_run_ended)
      fail(std::string("one that ") + t->who + " ran after its run had ended");
  }
  if (r_.below(3) == 0) return;  // nothing, this time
  test::goroutines_are_left_behind = true;
  for (std::uint32_t i = 1 + r_.below(6); i > 0; --i) {
    // The runtime's fuse is at 10'000 threads.
    const std::uint32_t kind = r_.below(counted.left_on_threads < 2000 ? 8 : 4);
    switch (kind) {
      case 0:
        go(wait_at_a_channel);
        break;
      case 1:
        go(sleep_long);
        break;
      case 2:
        go(wait_at_a_semaphore);
        semaphore_ = true;
        break;
      case 3:
        go(take_turns);
        break;
      case 4:
        go(compute);
        break;
      case 5:
        // TSan calls handlers late: nobody can tell when such a one has come out of malloc.
        if (!test::under_tsan) go(allocate);
        break;
      case 6:
        go(sit_in_a_call);
        break;
      case 7:
        // To TSan nothing orders the read before the close: he who reads never gets to tell.
        if (test::under_tsan || pipe_[0] >= 0 || ::pipe2(pipe_, O_CLOEXEC) != 0) break;
        go([fd = pipe_[0]] {
          char c = 0;
          (void)!::read(fd, &c, 1);  // until clean_up closes the other end
          for (;;) weft::yield();
        });
        break;
    }
    ++(kind < 4 ? counted.left_parked : counted.left_on_threads);
  }
  // Some have begun when main returns, some have not.
  for (std::uint32_t i = r_.below(20); i > 0; --i) weft::yield();
  if (r_.below(2) == 0) weft::sleep_for(std::chrono::microseconds(r_.below(5000)));
}

void leavings::clean_up() {
  // Looked at again at the end of the next run.
  for (turns* t : all_turns) t->when_their_run_ended = t->n;
  if (semaphore_) {
    no_permits.release();
    if (!no_permits.try_acquire()) fail("a permit was given to one that its run had left behind");
  }
  if (pipe_[0] >= 0) {
    ::close(pipe_[1]);
    ::close(pipe_[0]);
  }
}

}  // namespace weft::soak
