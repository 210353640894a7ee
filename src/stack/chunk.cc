// SPDX-License-Identifier: Apache-2.0
// See chunk.h. How a chunk is made, and why in this order:
//
//   mmap PROT_NONE    nothing is charged or populated, not even under mlockall(MCL_FUTURE)
//   munlock           under MCL_FUTURE it is born locked: made accessible it would become
//                     resident as a whole, and locked memory takes no guards
//   MADV_NOHUGEPAGE   one touched page must not cost 2 MiB
//   mprotect          here strict overcommit charges; neighbouring chunks, now alike, are
//                     merged into one area by the kernel
//
// ENOMEM (RLIMIT_AS, RLIMIT_DATA, strict overcommit, max_map_count) and EAGAIN (RLIMIT_MEMLOCK,
// where unlocking makes room for the next) halve the chunk, down to one slot; then there is nothing
// left but to say why.
//
// The links of slots come from blocks that are never unmapped; the registry is a slab. Both are
// written under the caller's growth lock. find_stack takes none. Runs on any stack, find_stack in
// signal handlers.
#include "stack/chunk.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <sys/mman.h>

#include "base/fatal.h"
#include "base/print.h"
#include "os/memory.h"
#include "stack/size_class.h"
#include "stack/stack_testing.h"

namespace weft::rt {

constinit slab<chunk> chunk_registry;

namespace {

constinit atomic<std::size_t> max_chunk_bytes{0};

// Bump allocation of links; under the growth lock.
constexpr std::size_t link_block = 64 * kib;
constinit slot_link* links_next = nullptr;
constinit std::size_t links_left = 0;

[[noreturn]] void exhausted(std::size_t bytes, int err) noexcept {
  const stack_stats st = get_stack_stats();
  begin_fatal();
  {
    printer out(2);
    out << "runtime: cannot reserve " << std::uint64_t{bytes / kib}
        << " KiB for a goroutine stack (" << std::uint64_t{st.in_use} << " stacks in use, "
        << std::uint64_t{st.bytes_reserved / kib} << " KiB reserved): ";
    explain_exhaustion(out, bytes, err);
    out << "\nfatal error: out of memory for goroutine stacks\n";
  }
  end_fatal();
}

mapping map_slots(std::size_t bytes) noexcept {
  const mapping m = map_reserved(bytes);
  if (!m) return m;
  const memory_range all{m.addr, bytes};
  unlock_memory(all);
  advise(all, MADV_NOHUGEPAGE);  // refused where there are no huge pages to forbid
  if (const int err = allow_access(all); err != 0) {
    unmap(all);
    return {0, err};
  }
  return m;
}

slot_link* new_links(std::size_t n) noexcept {
  if (links_left < n) {
    const mapping m = map_memory(link_block);
    if (!m) exhausted(link_block, m.err);
    links_next = reinterpret_cast<slot_link*>(m.addr);
    links_left = link_block / sizeof(slot_link);
  }
  slot_link* l = links_next;
  links_next += n;
  links_left -= n;
  for (std::size_t i = 0; i < n; ++i) ::new (&l[i]) slot_link;
  return l;
}

std::size_t slots_wanted(std::size_t slot) noexcept {
  const std::size_t n = slots_per_chunk(slot);
  const std::size_t limit = max_chunk_bytes.load(memory_order_relaxed);
  return limit == 0 ? n : std::clamp<std::size_t>(limit / slot, 1, n);
}

}  // namespace

chunk* make_chunk(std::size_t slot, std::uint32_t size_class, chunk* recycled) noexcept {
  std::size_t n = slots_wanted(slot);
  mapping m = map_slots(n * slot);
  while (!m) {
    if (n == 1 || (m.err != ENOMEM && m.err != EAGAIN)) exhausted(slot, m.err);
    n /= 2;
    m = map_slots(n * slot);
  }
  chunk* c = recycled;
  if (c == nullptr) {
    if (chunk_registry.size() >= max_chunks) fatal("too many goroutine stacks");
    c = chunk_registry.allocate();
    c->slot = slot;
    c->slots = static_cast<std::uint32_t>(n);
    c->size_class = size_class;
    c->index = static_cast<std::uint32_t>(chunk_registry.index_of(c));
    c->links = n == 1 ? &c->own : new_links(n);
  }
  c->lo.store(m.addr, memory_order_release);  // partner: the acquire in find_stack
  return c;
}

bool unmap_chunk(chunk* c) noexcept {
  const std::uintptr_t lo = c->lo.load(memory_order_relaxed);
  // First out of sight: once unmapped, the address may be anybody's.
  c->lo.store(0, memory_order_relaxed);
  if (unmap({lo, c->slot}) == 0) return true;
  c->lo.store(lo, memory_order_release);  // partner: the acquire in find_stack
  return false;
}

bool find_stack(std::uintptr_t addr, stack* out, bool* in_guard) noexcept {
  const std::size_t n = chunk_registry.size();
  for (std::size_t b = 0; b < n; b += slab<chunk>::per_block) {
    const chunk* first = chunk_registry.at(b);
    for (const chunk* c = first; c < first + std::min(n - b, slab<chunk>::per_block); ++c) {
      // Partner: the release in make_chunk; with lo comes the geometry.
      const std::uintptr_t lo = c->lo.load(memory_order_acquire);
      if (lo == 0 || addr < lo || addr - lo >= c->slots * c->slot) continue;
      const auto slot_index = static_cast<std::uint32_t>((addr - lo) / c->slot);
      if (slot_index >= c->carved.load(memory_order_relaxed)) return false;
      *out = stack_in(c, lo, slot_index);
      *in_guard = addr < out->lo;
      return true;
    }
  }
  return false;
}

namespace testing {

void set_max_chunk_bytes(std::size_t bytes) noexcept {
  max_chunk_bytes.store(bytes, memory_order_relaxed);
}

}  // namespace testing
}  // namespace weft::rt
