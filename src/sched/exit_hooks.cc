// SPDX-License-Identifier: Apache-2.0
// Exit hooks (see weft/run.hpp). The list belongs to whoever takes it: two that exit at once cannot
// run a hook twice, and the second one waits for ever, as the process is about to end. Runs on the
// stack of the caller; allocates.
#include "sched/exit_hooks.h"
#include "sched/unwind.h"

#include <cstdlib>
#include <cxxabi.h>
#include <memory>

#include "os/thread.h"
#include "sched/waiter.h"
#include "weft/run.hpp"

namespace weft::rt {
namespace {

struct hook {
  void (*fn)(void*);
  void* arg;
  void (*destroy)(void*);  // or null
  bool on_failure_too;
  hook* next;

  ~hook() {
    if (destroy != nullptr) destroy(arg);
  }
};
constinit mutex lock{lock_rank::leaf};
constinit hook* hooks = nullptr;                // newest first; under lock
constinit atomic<bool> exiting{false};          // weft::exit has been called
constinit atomic<const void*> runner{nullptr};  // the goroutine (or thread) that runs hooks now

const void* self() noexcept {
  const G* g = current_g();
  return g != nullptr ? static_cast<const void*>(g)
                      : reinterpret_cast<const void*>(static_cast<long>(thread_id()));
}

[[noreturn]] void wait_for_the_end() {
  waiter w;
  for (;;) w.wait([](void*, void*) {}, &w, wait_reason::internal);
}

}  // namespace

WEFT_CATCHES_FORCED_UNWIND void run_exit_hooks(int status) {
  lock.lock();
  hook* h = std::exchange(hooks, nullptr);
  lock.unlock();
  if (h == nullptr) return;
  runner.store(self(), memory_order_relaxed);
  while (h != nullptr) {
    const std::unique_ptr<hook> owned(h);
    if (status == 0 || h->on_failure_too) {
      try {
        h->fn(h->arg);
      } catch (const abi::__forced_unwind&) {
        throw;
      } catch (...) {
        fatal("exit hook invoked panic");
      }
    }
    h = h->next;
  }
  runner.store(nullptr, memory_order_relaxed);
}

}  // namespace weft::rt

namespace weft {

void at_exit(void (*fn)(void*), void* arg, bool on_failure_too) {
  detail::at_exit(fn, arg, nullptr, on_failure_too);
}

void detail::at_exit(void (*fn)(void*), void* arg, void (*destroy)(void*), bool on_failure_too) {
  auto* h = new rt::hook{fn, arg, destroy, on_failure_too, nullptr};
  rt::lock.lock();
  h->next = rt::hooks;
  rt::hooks = h;
  rt::lock.unlock();
}

void detail::run_exit(int status) {
  if (rt::runner.load(rt::memory_order_relaxed) == rt::self()) rt::fatal("exit hook invoked exit");
  if (rt::exiting.exchange(true, rt::memory_order_acq_rel)) rt::wait_for_the_end();
  rt::run_exit_hooks(status);
  std::exit(status);
}

}  // namespace weft
