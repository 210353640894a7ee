// SPDX-License-Identifier: Apache-2.0
// Starting the runtime: weft::run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <weft/detail/spawn.hpp>

namespace weft {

// What a dying process says beside its first line, as Go's GOTRACEBACK: nothing; the goroutine that
// fails (a deadlock and SIGQUIT show all); all of them; with the runtime's own functions; and then
// SIGABRT instead of status 2, which leaves a core.
enum class traceback : std::uint8_t { none, single, all, system, crash };

struct config {
  int procs = 0;  // 0 = automatic: cgroup CPU limit and affinity, followed while running
  std::size_t stack_size =
      256 * 1024;  // address space a goroutine gets; memory is committed page by page
  std::size_t main_stack_size = 8 * 1024 * 1024;  // for main's goroutine
  std::size_t max_threads = 10'000;               // the fuse; past it: fatal "thread exhaustion"
  bool preempt = true;
  std::chrono::nanoseconds quantum = std::chrono::milliseconds(10);
  std::uint64_t shuffle = 0;     // not 0: for debugging, randomises the run order from this seed
  std::uint32_t schedtrace = 0;  // milliseconds; not 0: prints a line about the scheduler so often
  bool scheddetail = false;      // with schedtrace: a line for each P, M and G too
  bool leakcheck = false;        // when main has returned: reports goroutines that are leaked
  bool attach = false;           // the tool `weft` may look at this process, see debug::attach
  bool embedded = false;         // the process is a host's, who knows more: no deadlock is fatal
  traceback level = traceback::single;  // WEFT_TRACEBACK

  // WEFT_PROCS, WEFT_STACK, WEFT_MAX_THREADS, WEFT_PREEMPT, WEFT_TRACEBACK, WEFT_DEBUG over the
  // defaults. Throws std::invalid_argument that names the variable if one does not parse.
  WEFT_API static config from_env();
};

namespace detail {
// Runs fn(arg) as goroutine 1; rethrows what it throws.
WEFT_API int run_main(const config& c, int (*fn)(void*), void* arg);
}  // namespace detail

// Starts the runtime on the calling thread, runs `main` as goroutine 1, and returns main's result
// (0 for void) when main returns, whatever other goroutines are doing: they are stopped and never
// run again. May be called again afterwards, from any thread. Throws std::logic_error inside or
// beside another run.
template <class F>
int run(const config& c, F&& main) {
  using plain = std::remove_reference_t<F>;
  if constexpr (std::is_function_v<plain>) {
    return weft::run(c, &main);  // a function's address does not fit a void*, its pointer's does
  } else {
    return detail::run_main(
        c,
        [](void* p) -> int {
          auto* f = static_cast<std::remove_const_t<plain>*>(p);
          if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
            std::invoke(std::forward<F>(*f));
            return 0;
          } else {
            return static_cast<int>(std::invoke(std::forward<F>(*f)));
          }
        },
        const_cast<std::remove_cv_t<plain>*>(std::addressof(main)));
  }
}
template <class F>
int run(F&& main) {
  return weft::run(config::from_env(), std::forward<F>(main));  // not a namesake of main's own
}

// Exit hooks. They run last in, first out when main returns and on weft::exit, on the goroutine
// that ends the run; with a status other than 0 only those that asked for it. One that throws is
// fatal `exit hook invoked panic`, one that calls weft::exit is fatal `exit hook invoked exit`.
// Hooks are forgotten once they have run.
WEFT_API void at_exit(void (*hook)(void*), void* arg, bool on_failure_too = false);
namespace detail {
// destroy(arg) follows, whether the hook was run or skipped.
WEFT_API void at_exit(void (*hook)(void*), void* arg, void (*destroy)(void*), bool on_failure_too);
}  // namespace detail
template <std::invocable F>
void at_exit(F f, bool on_failure_too = false) {
  auto p = std::make_unique<F>(std::move(f));
  detail::at_exit([](void* q) { (*static_cast<F*>(q))(); }, p.get(),
                  [](void* q) { delete static_cast<F*>(q); }, on_failure_too);
  (void)p.release();
}
namespace detail {
[[noreturn]] WEFT_API void run_exit(int status);
}  // namespace detail
// Runs the exit hooks, then ends the process as std::exit does. A template, so that under `using
// namespace weft` a plain exit(1) stays the C library's.
template <std::same_as<int> I>
[[noreturn]] void exit(I status) {
  detail::run_exit(status);
}

}  // namespace weft
