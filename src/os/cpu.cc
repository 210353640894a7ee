// SPDX-License-Identifier: Apache-2.0
// Counts the affinity mask. The system call is issued raw because libc's wrapper hides how many
// bytes the kernel wrote; everything past them is not part of the answer. A kernel with more than
// `max_cpus` CPUs refuses the buffer (EINVAL), which is treated like any other error.
//
// Invariant: the result is at least 1. Runs on any stack; needs 1 KiB of it.
#include "os/cpu.h"

#include <bit>
#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::rt {

int count_allowed(std::span<const unsigned char> mask, long bytes) noexcept {
  if (bytes <= 0) return 1;
  std::size_t n = static_cast<std::size_t>(bytes);
  if (n > mask.size()) n = mask.size();
  int cpus = 0;
  for (const unsigned char byte : mask.first(n)) cpus += std::popcount(byte);
  return cpus > 0 ? cpus : 1;
}

int online_cpus_allowed() noexcept {
  // The kernel asks for a buffer of whole machine words.
  alignas(unsigned long) unsigned char mask[max_cpus / 8];
  const int saved = errno;
  const long bytes = ::syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  errno = saved;
  return count_allowed(mask, bytes);
}

}  // namespace weft::rt
