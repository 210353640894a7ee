// SPDX-License-Identifier: Apache-2.0
// Plain memory: every access of the code under test is watched for data races.
//
// The tests and the real sources are compiled with -fsanitize=thread, and linked without its
// library: the calls that the compiler puts before each access come here. A cell for each eight
// bytes has, byte by byte, when each thread last wrote and read it, on that thread's own clock. An
// access by another thread races unless that moment is in what has happened before.
//
// Memory from `new` in a thread is never used twice in an execution, and that which is deleted
// stays dead: a later access is an error by itself.
//
// The hooks run on the fibers, and ignore everything outside them and the checker's own work.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "systematic/engine.h"
#include "systematic/memory.h"

namespace systematic {
namespace {

struct cell {
  std::uint64_t at = 0;
  std::uint64_t epoch = 0;  // of the execution it belongs to
  std::uint32_t wrote[max_threads][8];
  std::uint32_t read[max_threads][8];
  bool dead;
};

constexpr std::size_t cells = 1U << 14;
cell* table = nullptr;
std::uint64_t epoch = 1;

cell& cell_of(std::uint64_t at) {
  if (table == nullptr) table = static_cast<cell*>(std::calloc(cells, sizeof(cell)));
  std::size_t i = (at * 0x9e3779b97f4a7c15ULL) >> 50;
  for (std::size_t n = 0; n < cells; ++n, i = (i + 1) % cells) {
    cell& c = table[i];
    if (c.epoch != epoch) {
      c = cell{};
      c.at = at;
      c.epoch = epoch;
      return c;
    }
    if (c.at == at) return c;
  }
  fail("more memory than the checker can watch");
}

bool unseen(const std::uint32_t (*when)[8], unsigned byte, int t,
            const clock_vector& happened) noexcept {
  for (unsigned u = 0; u < max_threads; ++u) {
    if (static_cast<int>(u) != t && when[u][byte] > happened.at[u]) return true;
  }
  return false;
}

void check(std::uint64_t addr, std::size_t size, bool write) {
  const int t = the_engine.current();
  const clock_vector& happened = the_memory.thread(t).now.happened;
  const std::uint32_t now = happened.at[static_cast<unsigned>(t)];
  while (size > 0) {
    cell& c = cell_of(addr >> 3);
    if (c.dead) fail("plain memory is used after it was given back");
    for (unsigned b = addr & 7; b < 8 && size > 0; ++b, ++addr, --size) {
      if (unseen(c.wrote, b, t, happened))
        fail(write ? "a data race: write after a write that need not have happened before"
                   : "a data race: read of what was written, but need not have happened before");
      if (write && unseen(c.read, b, t, happened))
        fail("a data race: write of what another thread may still be reading");
      (write ? c.wrote : c.read)[t][b] = now;
    }
  }
}

void touch(const void* at, std::size_t size, bool write) noexcept {
  if (checker_at_work::busy || !the_engine.on_fiber()) return;
  const checker_at_work here;
  check(reinterpret_cast<std::uint64_t>(at), size, write);
}

// Memory that threads have asked for; used anew in the next execution.
constexpr std::size_t arena_size = 1U << 20;
alignas(64) char arena[arena_size];
std::size_t arena_used = 0;
std::vector<void*>* dead_blocks = nullptr;  // from the body, deleted by a thread

bool in_arena(const void* p) noexcept { return p >= arena && p < arena + arena_size; }

bool in_thread() noexcept { return !checker_at_work::busy && the_engine.on_fiber(); }

constexpr std::size_t header = 64;  // keeps the size, and the alignment

void* allocate(std::size_t n, std::size_t align) {
  if (!in_thread()) {
    void* p = align <= alignof(std::max_align_t)
                  ? std::malloc(n == 0 ? 1 : n)
                  : std::aligned_alloc(align, (n + align - 1) / align * align);
    if (p == nullptr) throw std::bad_alloc();
    return p;
  }
  const std::size_t room = (n + 63) / 64 * 64 + header;
  if (arena_used + room > arena_size) fail("threads allocate more than the checker has");
  char* p = arena + arena_used;
  arena_used += room;
  *reinterpret_cast<std::size_t*>(p) = n;
  return p + header;
}

void bury(void* p, std::size_t n) {
  const auto at = reinterpret_cast<std::uint64_t>(p);
  check(at, n, true);
  for (std::size_t i = 0; i < n; i += 8) cell_of((at + i) >> 3).dead = true;
}

void deallocate(void* p, std::size_t n = 0) {
  if (p == nullptr) return;
  if (in_arena(p)) {
    if (!in_thread()) return;
    const checker_at_work here;
    bury(p, *reinterpret_cast<std::size_t*>(static_cast<char*>(p) - header));
  } else if (in_thread()) {
    const checker_at_work here;
    bury(p, n);
    if (dead_blocks == nullptr) dead_blocks = new std::vector<void*>;
    dead_blocks->push_back(p);
  } else {
    std::free(p);
  }
}

}  // namespace

void forget_plain_accesses() noexcept { ++epoch; }

void release_dead_memory() noexcept {
  arena_used = 0;
  if (dead_blocks == nullptr) return;
  for (void* p : *dead_blocks) std::free(p);
  dead_blocks->clear();
}

}  // namespace systematic

void* operator new(std::size_t n) { return systematic::allocate(n, 1); }
void* operator new[](std::size_t n) { return systematic::allocate(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) {
  return systematic::allocate(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { systematic::deallocate(p); }
void operator delete[](void* p) noexcept { systematic::deallocate(p); }
void operator delete(void* p, std::size_t n) noexcept { systematic::deallocate(p, n); }
void operator delete[](void* p, std::size_t) noexcept { systematic::deallocate(p); }
void operator delete(void* p, std::align_val_t) noexcept { systematic::deallocate(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { systematic::deallocate(p); }

// What -fsanitize=thread calls.
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define WEFT_WATCH(size)                                                           \
  void __tsan_read##size(void* p) { systematic::touch(p, size, false); }           \
  void __tsan_write##size(void* p) { systematic::touch(p, size, true); }           \
  void __tsan_unaligned_read##size(void* p) { systematic::touch(p, size, false); } \
  void __tsan_unaligned_write##size(void* p) { systematic::touch(p, size, true); } \
  void __tsan_volatile_read##size(void* p) { systematic::touch(p, size, false); }  \
  void __tsan_volatile_write##size(void* p) { systematic::touch(p, size, true); }
WEFT_WATCH(1)
WEFT_WATCH(2)
WEFT_WATCH(4)
WEFT_WATCH(8)
WEFT_WATCH(16)
void __tsan_read_range(void* p, std::size_t n) { systematic::touch(p, n, false); }
void __tsan_write_range(void* p, std::size_t n) { systematic::touch(p, n, true); }
void __tsan_vptr_update(void** p, void*) { systematic::touch(p, sizeof *p, true); }
void __tsan_vptr_read(void** p) { systematic::touch(p, sizeof *p, false); }
// Outside the seam there are a prefetch's load, the counts of handles to channels and whether one
// is closed.
std::uint8_t __tsan_atomic8_load(const volatile std::uint8_t* p, int) { return *p; }
std::uint64_t __tsan_atomic64_load(const volatile std::uint64_t* p, int) { return *p; }
std::uint64_t __tsan_atomic64_fetch_add(volatile std::uint64_t* p, std::uint64_t n, int) {
  return std::exchange(*p, *p + n);
}
std::uint64_t __tsan_atomic64_fetch_sub(volatile std::uint64_t* p, std::uint64_t n, int) {
  return std::exchange(*p, *p - n);
}
}
