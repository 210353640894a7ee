// SPDX-License-Identifier: Apache-2.0
// The runtime's only clock: CLOCK_MONOTONIC in nanoseconds, by the vDSO.
#pragma once

#include <cstdint>
#include <ctime>

namespace weft::rt {

inline std::int64_t nanotime() noexcept {
  timespec ts;
  ::clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

}  // namespace weft::rt
