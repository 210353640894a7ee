// SPDX-License-Identifier: Apache-2.0
// The report of an exception that leaves a goroutine, in Go's form: an exception that was thrown
// while another was handled, or that has others nested in it, comes after them. Nothing is
// allocated but by the C++ runtime, which has a reserve, for those others.
//
// Called inside the catch block of goroutine_main, on the goroutine's stack; ends the process.
#include <cxxabi.h>
#include <exception>
#include <typeinfo>

#include "base/demangle.h"
#include "base/print.h"
#include "sched/last_words.h"
#include "sched/park.h"
#include "sched/sched.h"
#include "weft/fault.hpp"
#include "weft/go.hpp"

namespace weft::rt {
namespace {

// Goroutines that fail, and what they were handling when they threw, or null: the handlers are gone
// by the time of the report.
constinit last_words<std::exception_ptr> handled;

void keep_handled(const G* g) noexcept {
  handled.keep(g, [](std::exception_ptr& kept) { kept = std::current_exception(); });
}
std::exception_ptr handled_by(const G* g) noexcept {
  const std::exception_ptr* kept = g != nullptr ? handled.of(g) : nullptr;
  return kept != nullptr ? *kept : nullptr;
}

void print_type(printer& out) noexcept {
  static constinit demangler names;  // one thread reports
  const std::type_info* t = abi::__cxa_current_exception_type();
  if (t == nullptr) {
    out << "(foreign exception)";
    return;
  }
  const std::string_view name = names.type(t->name());
  out << '(' << (name.empty() ? std::string_view(t->name()) : name) << ')';
}

// What is being handled.
void print_value(printer& out) noexcept {
  try {
    throw;
  } catch (const memory_fault& f) {
    out << f.what() << "\n[signal SIGSEGV: segmentation violation code=";
    out.hex(static_cast<unsigned>(f.code())) << " addr=";
    out.hex(f.address()) << " pc=";
    out.hex(f.pc()) << ']';
  } catch (const std::exception& e) {
    if (const char* what = e.what()) {
      out << what;
    } else {
      print_type(out);
    }
  } catch (...) {
    print_type(out);
  }
}

std::exception_ptr nested_in(const std::exception_ptr& e) noexcept {
  try {
    std::rethrow_exception(e);
  } catch (const std::nested_exception& n) {
    return n.nested_ptr();
  } catch (...) {
    return nullptr;
  }
}

// With what is nested in it, which was caught and is older, before it.
void print_chain(printer& out, const std::exception_ptr& e, const char* fate) noexcept {
  if (const std::exception_ptr inner = nested_in(e)) {
    print_chain(out, inner, " [recovered]\n\t");
  }
  out << "panic: ";
  try {
    std::rethrow_exception(e);
  } catch (...) {
    print_value(out);
  }
  out << fate;
}

}  // namespace

namespace {
constinit atomic<std::uint32_t> failing{0};  // goroutines whose exception nobody catches
}

// One that is being unwound comes to its report as soon as its clean-ups have run, if they do not
// wait for something that never comes.
void let_failing_report() {
  constexpr std::int64_t patience = 10'000'000;
  const std::int64_t until = nanotime() + patience;
  // Acquire: with weft_uncaught.
  while (failing.load(memory_order_acquire) != 0 && nanotime() < until) yield_g();
  wait_for_report();
}

void report_uncaught(G* g) noexcept {
  begin_fatal();
  {
    printer out(2);
    const std::exception_ptr last = std::current_exception(), before = handled_by(g);
    if (last == nullptr) {
      out << "panic: ";
      print_value(out);
      out << '\n';
    } else if (before == last) {  // catch (...) { throw; }
      print_chain(out, last, " [recovered, repanicked]\n");
    } else {
      if (before != nullptr && nested_in(last) == nullptr)
        print_chain(out, before, " [recovered]\n\t");
      print_chain(out, last, "\n");
    }
  }
  end_fatal();
}

}  // namespace weft::rt

namespace weft::detail {

bool is_failing() noexcept {
  const rt::G* g = rt::current_g();
  return g != nullptr && rt::handled.of(g) != nullptr;
}

}  // namespace weft::detail

// The search for a handler has come to the bottom of a goroutine: nobody has one. The trace is
// taken now, before the unwind; the report comes when the clean-ups have run (run_closure).
extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code weft_uncaught(
    int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception*, _Unwind_Context*) {
  if ((actions & _UA_SEARCH_PHASE) != 0) {
    if (const weft::rt::G* g = weft::rt::current_g()) {
      weft::rt::failing.fetch_add(1, weft::rt::memory_order_release);  // with let_failing_report
      weft::rt::keep_trace(g);
      weft::rt::keep_handled(g);
    }
  }
  return _URC_CONTINUE_UNWIND;
}
