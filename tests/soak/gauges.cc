// SPDX-License-Identifier: Apache-2.0
// Memory from smaps_rollup, which is exact (the counters of /proc/self/status are kept per thread
// and lag behind); descriptors and threads by counting their directories.
//
// What is compared is taken between two runs, when all lanes have ended and the allocator has given
// back what it can. It still differs from phase to phase by what the phase happened to need at
// once, and the tolerances are that:
// - memory: free stacks stay cached with their first pages, idle threads with theirs and their
//   arenas, malloc keeps pages of which a part is in use. Peaks differ by some MiB, by more if the
//   warm-up was of seconds; a leak of 100 bytes a step would be hundreds of MiB an hour.
// - threads: an M stays for a minute after its last use, so those of a busier phase are still
//   there. Calls that block, hogs and threads of locked goroutines are some tens at once.
// - descriptors: none. All that the runtime keeps for itself is open before (open_what_stays).
#include "soak/gauges.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <malloc.h>

#include "soak/soak.h"
#include "support/effort.h"

namespace weft::soak {
namespace {

constexpr std::size_t memory_tolerance = 16 * 1024;  // KiB
constexpr std::size_t thread_tolerance = 48;
// A stack's first pages and its G; with a thread: its two stacks and what libc keeps for it.
constexpr std::size_t per_parked = 16, per_thread = 64;  // KiB

std::size_t entries(const char* directory) {
  DIR* d = ::opendir(directory);
  if (d == nullptr) return 0;
  std::size_t n = 0;
  while (const dirent* e = ::readdir(d)) n += e->d_name[0] != '.' ? 1 : 0;
  ::closedir(d);
  return n;
}

std::string more(const char* what, std::size_t first, std::size_t now, std::size_t allowed) {
  if (now <= first + allowed) return {};
  return std::string(what) + ": " + std::to_string(first) + " after the warm-up, " +
         std::to_string(now) + " now, of which " + std::to_string(allowed) +
         " more would be no leak";
}

}  // namespace

void give_back() {
  if (!test::sanitized) ::malloc_trim(0);  // theirs is another allocator
}

gauges look_at_process() {
  gauges g;
  if (std::FILE* f = std::fopen("/proc/self/smaps_rollup", "re")) {
    char line[256];
    while (std::fgets(line, sizeof line, f) != nullptr) {
      if (std::strncmp(line, "Rss:", 4) == 0) g.resident = std::strtoul(line + 4, nullptr, 10);
      if (std::strncmp(line, "Anonymous:", 10) == 0)
        g.anonymous = std::strtoul(line + 10, nullptr, 10);
    }
    std::fclose(f);
  }
  g.descriptors = entries("/proc/self/fd") - 1;  // the directory itself
  g.threads = entries("/proc/self/task");
  return g;
}

std::string growth(const gauges& first, const gauges& now, std::size_t left_parked,
                   std::size_t left_on_threads) {
  std::string s = more("descriptors", first.descriptors, now.descriptors, 0);
  if (s.empty())
    s = more("threads", first.threads, now.threads, thread_tolerance + left_on_threads);
  // A sanitizer's own records, and what it keeps back of freed memory, would be what is measured.
  if (s.empty() && !test::sanitized) {
    s = more("KiB of memory", first.anonymous, now.anonymous,
             (options.seconds < 60 ? 2 : 1) * memory_tolerance + left_parked * per_parked +
                 left_on_threads * per_thread);
  }
  return s;
}

}  // namespace weft::soak
