// SPDX-License-Identifier: Apache-2.0
// What the sources under test ask of the rest of the runtime, told by the checker: a fatal error is
// a failed execution. All threads are plain threads, which sleep on futexes in weft calls; nobody
// is a goroutine.
#include <cstdlib>
#include <string>

#include "base/fatal.h"
#include "context/context.h"
#include "os/section.h"
#include "sched/timers.h"
#include "sched/waiter.h"
#include "systematic/checker.h"
#include "weft/detail/chan_core.hpp"

thread_local constinit weft::rt::thread_words weft_tls{};

_Unwind_Reason_Code weft_uncaught(int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception*,
                                  _Unwind_Context*) {
  return _URC_CONTINUE_UNWIND;
}

// The switch's other half, which nobody enters here.
extern "C" [[noreturn]] void weft_fault_throw() { std::abort(); }
extern "C" [[noreturn]] void weft_left() { std::abort(); }
extern "C" _Unwind_Reason_Code weft_left_unwind(int, _Unwind_Action, _Unwind_Exception_Class,
                                                _Unwind_Exception*, _Unwind_Context*) {
  return _URC_CONTINUE_UNWIND;
}

namespace weft::rt {

void begin_fatal() noexcept {}
void end_fatal(bool) noexcept { systematic::fail("a fatal error"); }
void fatal(std::string_view what) noexcept {
  systematic::fail("fatal error: " + std::string(what));
}
void fatal_errno(std::string_view what, int) noexcept { fatal(what); }
int attend() noexcept { return 0; }

constinit atomic<std::uint64_t> blocked_threads{0};
bool thread_note::sleep_until(std::int64_t deadline) noexcept {  // without the deadlock detector
  return note_.sleep_until(deadline);
}
void park(park_commit, void*, wait_reason) { fatal("park on a plain thread"); }
void ready(G*) noexcept { fatal("ready of a goroutine"); }
void preempt_slow() { fatal("preemption of a plain thread"); }
void arm(timer*, std::int64_t, const G*) noexcept { fatal("a timer of a plain thread"); }
bool disarm(timer*) noexcept { fatal("a timer of a plain thread"); }

}  // namespace weft::rt

namespace weft::detail {

constinit atomic<std::uint32_t> live_bubbles{0};
std::uint32_t find_bubble() noexcept { return 0; }
std::int64_t now_ns() noexcept { return 0; }
void chan_core::last_handle_gone() noexcept { rt::fatal("a channel"); }
chan_core* chan_core::make(std::size_t, const elem_ops&, std::uint32_t, std::size_t,
                           const chan_owner*) {
  rt::fatal("a channel");
}
bool chan_core::close_now() noexcept { rt::fatal("a channel"); }

}  // namespace weft::detail
