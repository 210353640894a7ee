// SPDX-License-Identifier: Apache-2.0
// How many CPUs the kernel lets us run on: the upper bound of the default number of Ps.
//
// The affinity mask is the right source, not sysconf or /proc/cpuinfo: it already leaves out the
// CPUs that are offline, that the cpuset controller forbids and that `taskset` took away.
//
// Runs at start-up and in the monitor thread, on any stack: no allocation, no libc lock, errno left
// as it was.
#pragma once

#include <cstddef>
#include <span>

namespace weft::rt {

inline constexpr int max_cpus = 8192;  // NR_CPUS of the largest kernels that distributions build

// CPUs in the affinity mask of the calling thread; 1 if the kernel will not say. The monitor thread
// is never pinned by user code, so its mask is the one the process was started with or was given
// since.
int online_cpus_allowed() noexcept;

// The part that a test can reach: counts the set bits among the first `bytes` bytes of `mask`,
// where `bytes` is what the system call returned. An error (below 0) or an empty mask counts as one
// CPU.
int count_allowed(std::span<const unsigned char> mask, long bytes) noexcept;

}  // namespace weft::rt
