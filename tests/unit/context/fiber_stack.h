// SPDX-License-Identifier: Apache-2.0
// Contexts without a scheduler: a stack with a guard page below it, entered and left by
// fiber_switch, so that the sanitizers follow. For the tests of src/context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "context/fiber.h"
#include "os/memory.h"

namespace weft::rt::context_test {

// One side of a switch: the thread's own stack, or a fresh one.
struct side {
  rt::fiber fiber;
  void* sp = nullptr;
};

class fresh_stack : public side {
 public:
  static constexpr std::size_t bytes = 256 * 1024;

  // fn(a, b, c) must never return: it ends by switching away.
  explicit fresh_stack(entry_fn fn, void* a, void* b = nullptr, void* c = nullptr) {
    const mapping m = map_memory(bytes);
    if (!m) ADD_FAILURE() << "no memory for a stack";
    lo = m.addr;
    hi = lo + bytes;
    forbid_access({lo, page_size()});
    fiber.assign(lo + page_size(), hi);
    sp = make_context(hi, fn, a, b, c);
  }
  ~fresh_stack() {
#if defined(WEFT_TSAN)
    __tsan_destroy_fiber(fiber.handle);
#elif defined(WEFT_ASAN)
    ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(lo), bytes);
#endif
    if (lo != 0) unmap({lo, bytes});
  }
  fresh_stack(const fresh_stack&) = delete;
  fresh_stack& operator=(const fresh_stack&) = delete;

  bool contains(const void* p) const {
    const auto a = reinterpret_cast<std::uintptr_t>(p);
    return a >= lo && a < hi;
  }
  // A commit of the last switch away has freed the stack.
  void forget() { lo = 0; }

  std::uintptr_t lo = 0, hi = 0;
};

struct thread_side : side {
  thread_side() { fiber.adopt_thread(); }
};

inline void switch_between(side& from, side& to, weft_commit commit = nullptr, void* a = nullptr,
                           void* b = nullptr, bool last = false) {
  fiber_switch(from.fiber, to.fiber, last, &from.sp, to.sp, commit, a, b);
}

}  // namespace weft::rt::context_test
