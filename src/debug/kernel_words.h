// SPDX-License-Identifier: Apache-2.0
// What the kernel keeps for a program and gives back to it one day: pointers that no memory holds.
// The data of an epoll set, the value of a POSIX timer's signal; what a program has written to its
// own pipe and not read yet.
//
// Runs in a stopped world: no malloc, no libc lock.
#pragma once

#include "debug/arena.h"
#include "debug/regions.h"

namespace weft::rt {

// Shows those that the kernel lets be seen. False: there may be others.
bool see_kernel_words(arena& memory, region_reader::see_fn see, void* to) noexcept;

}  // namespace weft::rt
