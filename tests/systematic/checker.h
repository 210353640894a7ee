// SPDX-License-Identifier: Apache-2.0
// A model checker for the real lock-free code: what a test says.
//
//   explore({}, [](execution& x) {
//     runq q;                               made anew for each execution
//     x.threads([&] { ... }, [&] { ... });  one interleaving of these; returns when all have ended
//     require(..., "nothing is lost");
//   });
//
// The body is run again and again, each time with other choices, until there are none left. The
// real sources are compiled against seam/ (its base/atomic.h and os/futex.h lie before those of
// src/ on the include path), so every atomic operation asks the checker which thread goes on, and
// every load which of the stores it sees. memory.h says what a load may see, engine.h how the
// choices are enumerated, races.cc how plain memory is watched.
//
// A failure ends the exploration and prints what failed, the interleaving, and the string of
// choices that brings it back: --gtest_filter=... --replay=STRING.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "systematic/where.h"

namespace systematic {

inline constexpr int max_threads = 4;

struct options {
  // 0: all executions. Otherwise so many, each by a seed of its own: half of them draw each choice,
  // half give threads priorities that change at a few random steps (PCT).
  std::uint64_t random = 0;
  // >= 0: all executions with at most so many preemptions (and all stale reads); without
  // partial-order reduction, which would drop some within the bound for equals beyond it.
  int preemptions = -1;
  int stale = 2;  // so often in a row may a thread see the same store though there is a newer one
  int spurious =
      0;          // so often may a thread's weak exchange or its futex_wait come back for nothing
  int spins = 0;  // so often does cpu_relax come back to a thread though nothing has changed
  int max_steps = 2000;
};

struct result {
  std::uint64_t executions = 0;  // complete ones
  std::uint64_t pruned = 0;      // given up: equal to one that was seen
  std::string failure;           // empty: none
  std::string replay;
  explicit operator bool() const noexcept { return failure.empty(); }
};

class execution {
 public:
  // Runs these to their ends, once a call. On each other's stacks they find nothing: what they
  // share is made before.
  template <class... F>
  void threads(F&&... f) {
    run({std::function<void()>(std::forward<F>(f))...});
  }
  // For the printed interleaving. Threads are named in the order of threads().
  void name_threads(std::initializer_list<const char*> names);
  void name(const void* atomic, std::string name);

 private:
  void run(std::initializer_list<std::function<void()>> fs);
};

using body = std::function<void(execution&)>;

// Fails the running GoogleTest test if an execution fails, and says how many there were.
void explore(const options& o, const body& b);
// The same for tests of the checker itself.
result try_explore(const options& o, const body& b);
result try_replay(const options& o, const body& b, const std::string& choices);

// --replay=STRING of the command line: explore() runs that execution alone, and prints it.
std::string& replay_option();

// In threads and in the body.
void require(bool holds, std::string_view what, where at = where::current());
[[noreturn]] void fail(std::string_view what);
// A choice of the test's own, 0 .. n-1: explored like all others.
int choose(int n);
// Which thread of threads() runs; -1 in the body.
int this_thread();

// A door: pass() waits for open(), sees what happened before it, and shuts it again. What the
// scheduler's park and ready are to those who wait for one another.
class gate {
 public:
  void open() noexcept;
  void pass() noexcept;
};

}  // namespace systematic
