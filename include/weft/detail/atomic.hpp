// SPDX-License-Identifier: Apache-2.0
// The atomics of the public headers: std's. The systematic tests put their own header in the place
// of this one, as in that of src/base/atomic.h.
#pragma once

#include <atomic>

namespace weft::detail {

template <class T>
using atomic = std::atomic<T>;

}  // namespace weft::detail
