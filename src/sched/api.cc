// SPDX-License-Identifier: Apache-2.0
// The thin public functions of go.hpp over the scheduler.
#include <cxxabi.h>
#include <sched.h>

#include "os/cpu.h"
#include "sched/park.h"
#include "sched/procs.h"
#include "sched/sched.h"
#include "sched/unwind.h"
#include "weft/go.hpp"

namespace weft {

void yield() {
  if (rt::current_g() == nullptr) {
    ::sched_yield();
    return;
  }
  rt::yield_g();
}

void goexit() {
  rt::G* g = rt::current_g();
  if (g == nullptr)
    rt::fatal("runtime.Goexit called in a thread that was not created by the Go runtime");
  rt::call_goexit(g);
}

std::uint64_t goid() {
  rt::G* g = rt::current_g();
  return g != nullptr ? g->goid : 0;
}

std::size_t num_goroutines() { return rt::goroutine_count(); }
int procs() { return rt::get_procs(); }
int set_procs(int n) { return rt::set_procs(n, false); }
void set_procs_auto() { rt::set_procs(rt::automatic_procs(), true); }
int num_cpu() { return rt::online_cpus_allowed(); }

void scope::detail_report(const std::exception_ptr& e) noexcept {
  try {
    std::rethrow_exception(e);
  } catch (...) {
    rt::report_uncaught(rt::current_g());
  }
}

namespace detail {

int unwind_depth() noexcept {
  const rt::G* g = rt::current_g();
  return std::uncaught_exceptions() +
         (g != nullptr && g->exiting() == rt::exit_state::begun ? 1 : 0);
}

goexit_waits::goexit_waits() noexcept {
  rt::G* g = rt::current_g();
  put_off_ = g != nullptr && g->exiting() == rt::exit_state::put_off;
  if (put_off_) g->set_exiting(rt::exit_state::none);
}

goexit_waits::~goexit_waits() {
  if (put_off_) rt::current_g()->set_exiting(rt::exit_state::put_off);
}

WEFT_CATCHES_FORCED_UNWIND void run_catching(std::exception_ptr& error, void (*f)(void*),
                                             void* arg) {
  try {
    f(arg);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    error = std::current_exception();
  }
}

}  // namespace detail
}  // namespace weft
