// SPDX-License-Identifier: Apache-2.0
// What the process has, as the kernel counts it, and how much more of it is no leak.
#pragma once

#include <cstddef>
#include <string>

namespace weft::soak {

struct gauges {
  std::size_t resident = 0;   // KiB, all of it
  std::size_t anonymous = 0;  // KiB of it that no file holds: what a leak makes grow
  std::size_t descriptors = 0;
  std::size_t threads = 0;
};
gauges look_at_process();
void give_back();  // what the allocator keeps for later

// Empty, or in which way `now` is more than `first` and what has been left behind since account
// for.
std::string growth(const gauges& first, const gauges& now, std::size_t left_parked,
                   std::size_t left_on_threads);

}  // namespace weft::soak
