// SPDX-License-Identifier: Apache-2.0
// The leak finder: goroutines that nothing can ever wake (DESIGN 7.3). How, and why there is no
// false alarm: leaks.cc.
#pragma once

#include "debug/arena.h"
#include "debug/traces.h"

namespace weft::rt {

// Stops the world, marks what is leaked (and what is not any more), and takes the traces of what
// is. From a goroutine or a plain thread. Of the caller's stack what lies above own_frame is looked
// at: stack_below() of a function that has saved all registers and does nothing else, so that what
// our frames happen to lie on is not taken for something that the program knows.
void look_for_leaks(arena& memory, arena_list<g_record>& out, const void* own_frame);

}  // namespace weft::rt
