// SPDX-License-Identifier: Apache-2.0
// Files by io_uring: who has to wait for a disk parks, and no thread waits with it. See uring.cc.
#pragma once

#include "file/calls.h"

namespace weft::detail {

// The same results as perform_blocking, which does it where the kernel has no io_uring, or keeps it
// from this process.
long perform_uring(const file_call& c);

// Whether it is there; the first question starts it.
bool uring_works();

}  // namespace weft::detail
