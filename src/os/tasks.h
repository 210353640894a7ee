// SPDX-License-Identifier: Apache-2.0
// The threads of this process, as the kernel counts them.
#pragma once

#include <cstdint>

namespace weft::rt {

// How many there were at one moment during the call that can run code of the program; 0 if that
// cannot be known. Right if it is `expected`; else there may be fewer. Takes neither lock nor
// memory; may change errno.
std::uint32_t count_threads(std::uint32_t expected) noexcept;
// From now on there may be threads of the kernel's own among them, which cannot: workers of a ring.
// Until somebody says so nobody looks for them; with the ring of somebody else alone there may be
// fewer than is said.
void expect_workers() noexcept;

}  // namespace weft::rt
