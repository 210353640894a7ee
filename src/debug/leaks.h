// SPDX-License-Identifier: Apache-2.0
// The leak finder: goroutines that nothing can ever wake (DESIGN 7.3). How, and why there is no
// false alarm: leaks.cc.
#pragma once

#include "debug/arena.h"
#include "debug/lock_cycles.h"
#include "debug/traces.h"

namespace weft::rt {

// Stops the world, marks what is leaked (and what is not any more), and takes the traces of what
// is, and of who waits for whose lock. From a goroutine or a plain thread. Of the caller's stack
// what lies above own_frame is looked at: stack_below() of a function that has saved all registers
// and does nothing else, so that what our frames happen to lie on is not taken for something that
// the program knows.
void look_for_leaks(arena& memory, arena_list<g_record>& out, arena_list<lock_wait>& cycles,
                    const void* own_frame);

// Waits on a channel or a sync object: for somebody of the program's.
bool waits_for_others(wait_reason r) noexcept;

}  // namespace weft::rt
