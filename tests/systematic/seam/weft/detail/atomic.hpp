// SPDX-License-Identifier: Apache-2.0
// What include/weft/detail/atomic.hpp is to the public headers, for the systematic tests.
#pragma once

#include "base/atomic.h"

namespace weft::detail {

using systematic::atomic;

}  // namespace weft::detail
