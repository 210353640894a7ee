// SPDX-License-Identifier: Apache-2.0
// goexit: a forced unwind that no handler can swallow for good (spawn.cc).
#pragma once

#include "core/g.h"

// On functions with a `catch (const abi::__forced_unwind&)`: a foreign exception has no object, so
// the handler's reference is null, which UBSan takes for a mistake. noinline: GCC forgets the
// attribute when it inlines.
#define WEFT_CATCHES_FORCED_UNWIND __attribute__((no_sanitize("null"), noinline))

namespace weft::rt {

[[noreturn]] void call_goexit(G* g);   // what goexit() does
[[noreturn]] void start_goexit(G* g);  // starts the unwind, or starts it again
// In calls that may park: somebody caught the unwind and went on as if nothing had happened. Goes
// on unwinding if that is certain, returns if this is a clean-up that the unwind itself is running.
void resume_goexit(G* g);

}  // namespace weft::rt
