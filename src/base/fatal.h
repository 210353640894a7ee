// SPDX-License-Identifier: Apache-2.0
// How the runtime dies: `fatal` prints Go's form to standard error and ends the process with
// status 2. It is always on, allocates nothing, takes no lock that anybody else may hold for long,
// and never returns. `debug_assert` exists in dev builds only; in release it vanishes and assumes
// nothing.
//
// Runs on any stack, in signal handlers too.
#pragma once

#include <string_view>

namespace weft::rt {

// A hook that adds to the report (the trace of the goroutine that fails, or of all of them); set
// once, called with the text already on standard error; once more if it fails itself.
using fatal_hook = void (*)(bool all) noexcept;
void set_fatal_hook(fatal_hook h) noexcept;

// Only one thread reports; others that fail meanwhile wait here for the end of the process.
void begin_fatal() noexcept;
[[noreturn]] void end_fatal(bool all = false) noexcept;
// Whoever would end the process, or stop the one who reports, lets him finish: never returns if
// there is one.
void wait_for_report() noexcept;

// "fatal error: <what>\n", then the hook, then _exit(2).
[[noreturn]] void fatal(std::string_view what) noexcept;
// The same with the number of a system error behind it: "fatal error: <what>: errno 12\n".
[[noreturn]] void fatal_errno(std::string_view what, int err) noexcept;

#if defined(WEFT_DEV)
[[noreturn]] void assert_failed(const char* expr, const char* file, int line) noexcept;
#define WEFT_DEBUG_ASSERT(e) \
  (static_cast<bool>(e) ? void(0) : ::weft::rt::assert_failed(#e, __FILE__, __LINE__))
#else
#define WEFT_DEBUG_ASSERT(e) ((void)0)
#endif

}  // namespace weft::rt
