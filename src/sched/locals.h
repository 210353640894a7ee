// SPDX-License-Identifier: Apache-2.0
// Goroutine-local values: a table a goroutine owns, emptied when it exits, newest first.
#pragma once

#include "core/g.h"

namespace weft::rt {

void destroy_locals(G* g) noexcept;

}  // namespace weft::rt
