// SPDX-License-Identifier: Apache-2.0
// What the C++ runtime and libc keep per thread but a goroutine must own: the exception globals
// (the stack of caught exceptions and the count of uncaught ones, DESIGN 2.2) and errno (2.1). Each
// M finds the two addresses once, on its own thread; at every switch the values travel with the
// goroutine.
//
// The layout of __cxa_eh_globals is fixed by the Itanium C++ ABI: a pointer, then an unsigned int.
// (ARM's EHABI adds a third word, 32-bit only.)
#pragma once

#include <cerrno>
#include <cstdint>
#include <cxxabi.h>

namespace weft::rt {

struct eh_state {
  void* caught = nullptr;
  unsigned int uncaught = 0;
  // The ABI's struct ends before this word. It belongs to the goroutine and never travels: since
  // when it waits, in seconds of sched.seconds.
  std::uint32_t since = 0;
};

// One thread's own copies. The addresses belong to the thread that called bind().
struct thread_state {
  eh_state* eh = nullptr;
  int* err = nullptr;

  void bind() noexcept {
    eh = reinterpret_cast<eh_state*>(abi::__cxa_get_globals());
    err = &errno;
  }
  void set(const eh_state& in, int in_err) const noexcept {
    eh->caught = in.caught;
    eh->uncaught = in.uncaught;
    *err = in_err;
  }
  // Takes the thread's values into the outgoing owner and gives it the incoming one's.
  void exchange(eh_state& out, int& out_err, const eh_state& in, int in_err) const noexcept {
    out.caught = eh->caught;
    out.uncaught = eh->uncaught;
    eh->caught = in.caught;
    eh->uncaught = in.uncaught;
    out_err = *err;
    *err = in_err;
  }
};

}  // namespace weft::rt
