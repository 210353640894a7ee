// SPDX-License-Identifier: Apache-2.0
// The report of an exception that leaves a goroutine, in Go's form: an exception that was thrown
// while another was handled, or that has others nested in it, comes after them. Nothing is
// allocated but by the C++ runtime, which has a reserve, for those others.
//
// Called inside the catch block of goroutine_main, on the goroutine's stack; ends the process.
#include <cctype>
#include <cxxabi.h>
#include <exception>
#include <new>
#include <typeinfo>
#include <utility>

#include "base/print.h"
#include "sched/sched.h"
#include "weft/fault.hpp"

namespace weft::rt {
namespace {

// Names of the fundamental types, which is most of what people throw that is no std::exception.
std::string_view fundamental(char c) noexcept {
  switch (c) {
    case 'b':
      return "bool";
    case 'c':
      return "char";
    case 'h':
      return "unsigned char";
    case 's':
      return "short";
    case 'i':
      return "int";
    case 'j':
      return "unsigned int";
    case 'l':
      return "long";
    case 'm':
      return "unsigned long";
    case 'x':
      return "long long";
    case 'f':
      return "float";
    case 'd':
      return "double";
    default:
      return {};
  }
}

// A demangler for plain and nested names (the library's own allocates); what it does not know is
// printed as it is.
void print_type(printer& out, const char* mangled) noexcept {
  const char* s = mangled;
  while (*s == 'P' || *s == 'K') ++s;
  if (std::string_view f = fundamental(*s); !f.empty() && s[1] == '\0') {
    if (s > mangled && s[-1] == 'K') out << "const ";
    out << f << (*mangled == 'P' ? "*" : "");
    return;
  }
  const bool nested = *s == 'N';
  if (nested) ++s;
  const char* check = s;
  if (check[0] == 'S' && check[1] == 't') check += 2;
  while (std::isdigit(static_cast<unsigned char>(*check)) != 0) {
    std::size_t n = 0;
    while (std::isdigit(static_cast<unsigned char>(*check)) != 0)
      n = n * 10 + static_cast<std::size_t>(*check++ - '0');
    for (; n > 0 && *check != '\0'; --n) ++check;
  }
  if (*check != (nested ? 'E' : '\0') || s != mangled + (nested ? 1 : 0)) {
    out << mangled;
    return;
  }
  bool first = true;
  if (s[0] == 'S' && s[1] == 't') {
    out << "std";
    s += 2;
    first = false;
  }
  while (std::isdigit(static_cast<unsigned char>(*s)) != 0) {
    std::size_t n = 0;
    while (std::isdigit(static_cast<unsigned char>(*s)) != 0)
      n = n * 10 + static_cast<std::size_t>(*s++ - '0');
    out << (first ? "" : "::") << std::string_view(s, n);
    s += n;
    first = false;
  }
}

}  // namespace

namespace {

// What the first goroutine that fails was handling when it threw. Its handler is gone by the time
// of the report, so it is kept; never destroyed, the process ends.
struct {
  atomic<bool> taken{false};
  atomic<const G*> of{nullptr};
  alignas(std::exception_ptr) char room[sizeof(std::exception_ptr)];
} constinit handled{};

void keep_handled(const G* g) noexcept {
  std::exception_ptr e = std::current_exception();
  if (e == nullptr || handled.taken.exchange(true, memory_order_relaxed)) return;
  ::new (handled.room) std::exception_ptr(std::move(e));
  handled.of.store(g, memory_order_release);  // with handled_by
}
std::exception_ptr handled_by(const G* g) noexcept {
  if (g == nullptr || handled.of.load(memory_order_acquire) != g) return nullptr;
  return *std::launder(reinterpret_cast<std::exception_ptr*>(handled.room));
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
    out << e.what();
  } catch (...) {
    const std::type_info* t = abi::__cxa_current_exception_type();
    out << '(';
    if (t != nullptr) {
      print_type(out, t->name());
    } else {
      out << "foreign exception";
    }
    out << ')';
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

// The search for a handler has come to the bottom of a goroutine: nobody has one. The trace is
// taken now, before the unwind; the report comes when the clean-ups have run (run_closure).
extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code weft_uncaught(
    int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception*, _Unwind_Context*) {
  if ((actions & _UA_SEARCH_PHASE) != 0) {
    if (const weft::rt::G* g = weft::rt::current_g()) {
      weft::rt::keep_trace(g);
      weft::rt::keep_handled(g);
    }
  }
  return _URC_CONTINUE_UNWIND;
}
