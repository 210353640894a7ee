// SPDX-License-Identifier: Apache-2.0
// Between the fault handlers and the report. install_reports() itself is declared in sched/sched.h.
#pragma once

#include "core/g.h"
#include "debug/cfi.h"

namespace weft::rt {

void install_fault_handlers() noexcept;  // fault.cc

// The report that follows is about this place, not about where end_fatal is called.
void set_fault(const registers& at, const G* g) noexcept;
bool on_dump_thread() noexcept;

}  // namespace weft::rt
