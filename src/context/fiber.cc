// SPDX-License-Identifier: Apache-2.0
// See fiber.h. Runs on the stack that leaves and then on the one that enters.
#include "context/fiber.h"

#include <cstddef>
#include <exception>

#include <atomic>
#include <pthread.h>

#include "base/atomic.h"

namespace weft::rt {

void fiber::adopt_thread() noexcept {
#if defined(WEFT_ASAN)
  pthread_attr_t attr;
  void* base = nullptr;
  std::size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attr) == 0) {
    pthread_attr_getstack(&attr, &base, &size);
    pthread_attr_destroy(&attr);
  }
  lo = reinterpret_cast<std::uintptr_t>(base);
  hi = lo + size;
#elif defined(WEFT_TSAN)
  handle = __tsan_get_current_fiber();
#endif
}

#if defined(WEFT_TSAN)
namespace {

constexpr std::size_t most_handles = 8192;
std::atomic<bool> handles_locked{false};
void* handles[most_handles];
std::size_t handle_count = 0;

struct handle_lock {
  handle_lock() noexcept {
    while (handles_locked.exchange(true, std::memory_order_acquire)) cpu_relax();
  }
  ~handle_lock() { handles_locked.store(false, std::memory_order_release); }
};

}  // namespace

void* fiber::take_handle() noexcept {
  {
    handle_lock locked;
    if (handle_count > 0) return handles[--handle_count];
  }
  return __tsan_create_fiber(0);
}

void fiber::put_handle(void* h) noexcept {
  {
    handle_lock locked;
    if (handle_count < most_handles) {
      handles[handle_count++] = h;
      return;
    }
  }
  __tsan_destroy_fiber(h);
}
#endif

#if defined(WEFT_ASAN)
__attribute__((noinline, no_sanitize("address"))) void fiber_switch(fiber& from, fiber& to,
                                                                    bool last, void** from_sp,
                                                                    void* to_sp, weft_commit commit,
                                                                    void* a, void* b) noexcept {
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake, reinterpret_cast<void*>(to.lo),
                                 to.hi - to.lo);
  (void)from;
  weft_switch(from_sp, to_sp, commit, a, b);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

// ASan must be told of each change of stacks, so an exception is carried over by hand.
void fiber_call_on(fiber& on, void* sp, void (*fn)(void*), void* arg) {
  struct call {
    void (*fn)(void*);
    void* arg;
    const void* lo = nullptr;
    std::size_t size = 0;
    void* fake = nullptr;
    std::exception_ptr error = nullptr;
  } c{fn, arg};
  __sanitizer_start_switch_fiber(&c.fake, reinterpret_cast<void*>(on.lo), on.hi - on.lo);
  weft_call_on(
      sp,
      [](void* p) {
        auto* self = static_cast<call*>(p);
        __sanitizer_finish_switch_fiber(nullptr, &self->lo, &self->size);
        try {
          self->fn(self->arg);
        } catch (...) {
          self->error = std::current_exception();
        }
        void* ours = nullptr;
        __sanitizer_start_switch_fiber(&ours, self->lo, self->size);
      },
      &c);
  __sanitizer_finish_switch_fiber(c.fake, nullptr, nullptr);
  if (c.error) std::rethrow_exception(c.error);
}
#elif defined(WEFT_TSAN)
__attribute__((noinline, no_sanitize("thread"))) void fiber_switch(fiber&, fiber& to, bool,
                                                                   void** from_sp, void* to_sp,
                                                                   weft_commit commit, void* a,
                                                                   void* b) noexcept {
  __tsan_switch_to_fiber(to.handle, 0);
  weft_switch(from_sp, to_sp, commit, a, b);
}
#endif

}  // namespace weft::rt
