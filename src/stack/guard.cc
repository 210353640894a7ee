// SPDX-License-Identifier: Apache-2.0
// Guards below stacks, three ways, best first:
//
// 1. MADV_GUARD_INSTALL (Linux 6.13): marks in the page tables. No mapping is split, so a million
//    guards cost no more areas than none. They survive MADV_DONTNEED and fork.
// 2. mprotect(PROT_NONE): each guard splits the chunk's mapping, two more areas a stack.
//    vm.max_map_count (65 530) ends that at 32 000 stacks, and at that point nothing else in the
//    process can map memory either: no thread, no large malloc. So we stop at seven eighths of the
//    limit, before the kernel stops us.
// 3. None. Said once on standard error.
//
// Which it is, the first batch decides. Success of the call is no proof: emulators (qemu's user
// mode) accept any advice and do nothing, so the first guard is asked for by a read through the
// kernel. Threads may decide at the same time; they see the same kernel and come to the same end.
//
// MADV_GUARD_INSTALL refuses locked memory. Chunks are mapped unlocked, but mlockall(MCL_CURRENT)
// may have come between mapping and carving: unlock and try again.
//
// Runs on any stack, without locks; counters are relaxed, they are only counted.
#include "stack/guard.h"

#include <algorithm>
#include <cerrno>

#include "base/atomic.h"
#include "base/print.h"
#include "os/memory.h"
#include "stack/stack.h"
#include "stack/stack_testing.h"

namespace weft::rt {
namespace {

enum means : int { undecided, by_madvise, by_mprotect, nothing };

atomic<int> chosen{undecided};
atomic<std::size_t> budget{0};        // what n_split may grow to
atomic<bool> budget_is_final{false};  // and it will never be more
atomic<std::size_t> n_split{0};       // guards by mprotect that exist now
atomic<std::size_t> n_madvise{0}, n_mprotect{0}, n_missing{0};
atomic<bool> warned{false};

constexpr std::size_t guards_a_call = 32;

// May mprotect install one more? The mappings of the whole process are counted anew whenever half
// of the room is used up, for others make some as well; once there is none, what we have is all we
// get.
bool room_for_split() noexcept {
  const std::size_t have = n_split.load(memory_order_relaxed);
  if (have < budget.load(memory_order_relaxed)) return true;
  if (budget_is_final.load(memory_order_relaxed)) return false;
  const std::size_t most = max_map_count();
  const std::size_t ours = most - most / 8;
  const std::size_t areas = count_mappings();  // milliseconds when there are many
  const std::size_t room = areas < ours ? (ours - areas) / 2 : 0;  // two areas a guard
  const std::size_t more = std::min(room, std::max<std::size_t>(room / 2, 1024));
  if (more == 0) budget_is_final.store(true, memory_order_relaxed);
  budget.store(have + more, memory_order_relaxed);
  return more > 0;
}

void warn_once() noexcept {
  if (warned.exchange(true, memory_order_relaxed)) return;
  printer(2)
      << "runtime: vm.max_map_count (" << std::uint64_t{max_map_count()}
      << ") leaves no room for more stack guards; from here on new goroutine stacks have none"
         " (raise it, or use Linux 6.13 or later, which needs no mappings for them)\n";
}

std::size_t guard_by_mprotect(const memory_range* r, std::size_t n) noexcept {
  std::size_t split = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (room_for_split() && forbid_access(r[i]) == 0) {
      n_split.fetch_add(1, memory_order_relaxed);
      n_mprotect.fetch_add(1, memory_order_relaxed);
      ++split;
    } else {
      n_missing.fetch_add(1, memory_order_relaxed);
      warn_once();
    }
  }
  return split;
}

// True if all n are guarded now or counted as missing; false if this kernel has no such advice (the
// caller is to begin anew with mprotect, which does no harm to what is there already).
bool guard_by_madvise(const memory_range* r, std::size_t n, std::size_t* split) noexcept {
  std::size_t i = 0;
  bool unlocked = false;
  while (i < n) {
    std::size_t done = 0;
    const int err = advise_ranges(r + i, n - i, advice_guard_install, &done);
    if (done > 0 && chosen.load(memory_order_relaxed) == undecided) {
      if (is_readable(r[i].addr)) return false;  // said yes, did nothing
      chosen.store(by_madvise, memory_order_relaxed);
    }
    n_madvise.fetch_add(done, memory_order_relaxed);
    i += done;
    if (err == 0) break;
    if (err == EINVAL && !unlocked) {
      unlock_memory({r[i].addr, r[n - 1].addr + r[n - 1].bytes - r[i].addr});
      unlocked = true;
      continue;
    }
    if (chosen.load(memory_order_relaxed) == undecided) return false;
    *split += guard_by_mprotect(r + i, 1);  // no memory for a page table, say: this one only
    ++i;
    unlocked = false;
  }
  return true;
}

}  // namespace

std::size_t install_guards(std::uintptr_t base, std::size_t slot, std::size_t n) noexcept {
  memory_range r[guards_a_call];
  std::size_t split = 0;
  while (n > 0) {
    const std::size_t k = std::min(n, guards_a_call);
    for (std::size_t i = 0; i < k; ++i) r[i] = {base + i * slot, guard_size};
    const int how = chosen.load(memory_order_relaxed);
    if (how == nothing) {
      n_missing.fetch_add(k, memory_order_relaxed);
    } else if (how == by_mprotect) {
      split += guard_by_mprotect(r, k);
    } else if (!guard_by_madvise(r, k, &split)) {
      chosen.store(by_mprotect, memory_order_relaxed);
      split += guard_by_mprotect(r, k);
    }
    base += k * slot;
    n -= k;
  }
  return split;
}

void forget_split_guards(std::size_t n) noexcept { n_split.fetch_sub(n, memory_order_relaxed); }

guard_counts get_guard_counts() noexcept {
  return {n_madvise.load(memory_order_relaxed), n_mprotect.load(memory_order_relaxed),
          n_missing.load(memory_order_relaxed)};
}

namespace testing {

void force_guard_mode(guard_mode m) noexcept {
  switch (m) {
    case guard_mode::automatic:
      chosen.store(undecided, memory_order_relaxed);
      break;
    case guard_mode::mprotect:
      chosen.store(by_mprotect, memory_order_relaxed);
      break;
    case guard_mode::none:
      chosen.store(nothing, memory_order_relaxed);
      break;
  }
}

void set_mprotect_budget(std::size_t guards) noexcept {
  budget.store(guards, memory_order_relaxed);
}

}  // namespace testing
}  // namespace weft::rt
