// SPDX-License-Identifier: Apache-2.0
// Type-stable memory for runtime objects (G, M, P, stack chunks): cells of one type in 64 KiB
// blocks that are mapped once and never unmapped. A pointer to a cell stays a pointer to a T for
// ever, so a late reader of a released object meets a stale T and not something else; generations
// inside T tell it so.
//
// Rejected: links inside the free cells (they would overwrite the generation a late waker reads),
// one big reserved array (strict overcommit and RLIMIT_AS charge all of it at once).
//
// - A block is aligned to its size, so that a cell finds its block by masking. Its head holds the
//   free links, beside the cells; a released cell keeps its contents to the last bit.
// - T's constructor runs once per cell, when the cell is first carved. It never runs again and no
//   destructor ever does: allocate() returns a recycled cell as release() left it.
// - Cells are carved in order, so pages at the end of the last block stay untouched.
// - The table of blocks only grows. size(), at(), index_of() and the for_each functions take no
//   lock and may run against allocate(), in signal handlers too; they see every cell ever carved,
//   free or not.
//
// allocate() and release() must be synchronised by the caller, who knows which lock that is. A slab
// is constant-initialised and trivially destroyed: it works before main and after it. Runs on any
// stack.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <type_traits>

#include "base/atomic.h"
#include "base/chaos.h"
#include "base/fatal.h"
#include "base/print.h"

namespace weft::rt {
namespace slab_detail {

inline constexpr std::size_t block_bytes = 64 * 1024;

[[noreturn]] inline void out_of_memory(std::size_t bytes, int err) noexcept {
  begin_fatal();
  printer(2) << "runtime: cannot map " << std::uint64_t{bytes}
             << " bytes for runtime objects: errno " << err << "\nfatal error: out of memory\n";
  end_fatal();
}

inline void* map_pages(std::size_t bytes) noexcept {
  const int saved = errno;
  if (const int err = chaos::fault("mmap"); err != 0) out_of_memory(bytes, err);
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) out_of_memory(bytes, errno);
  errno = saved;
  return p;
}

// 64 KiB aligned to 64 KiB. The kernel places mappings one below the other, so after the first
// block a plain mapping is nearly always aligned already, and the blocks merge into one area.
inline void* map_block() noexcept {
  constexpr std::uintptr_t mask = block_bytes - 1;
  void* plain = map_pages(block_bytes);
  if ((reinterpret_cast<std::uintptr_t>(plain) & mask) == 0) return plain;
  const int saved = errno;
  ::munmap(plain, block_bytes);
  auto lo = reinterpret_cast<std::uintptr_t>(map_pages(2 * block_bytes));
  const std::uintptr_t hi = lo + 2 * block_bytes;
  // The highest that fits, so that the next lies just below.
  const std::uintptr_t keep = (hi - block_bytes) & ~mask;
  if (keep > lo) ::munmap(reinterpret_cast<void*>(lo), keep - lo);
  if (hi > keep + block_bytes)
    ::munmap(reinterpret_cast<void*>(keep + block_bytes), hi - keep - block_bytes);
  errno = saved;
  return reinterpret_cast<void*>(keep);
}

}  // namespace slab_detail

template <class T>
class slab {
  static_assert(std::is_nothrow_default_constructible_v<T>);
  static_assert(alignof(T) <= 4096);

  struct head {
    std::uint32_t index;  // of this block in the table; per_block links follow, cell by cell
  };
  static constexpr std::size_t head_bytes(std::size_t cells) noexcept {
    const std::size_t raw = sizeof(head) + cells * sizeof(std::uint32_t);
    return (raw + alignof(T) - 1) / alignof(T) * alignof(T);
  }
  static constexpr std::size_t fit() noexcept {
    std::size_t n = slab_detail::block_bytes / (sizeof(T) + sizeof(std::uint32_t));
    while (n > 0 && head_bytes(n) + n * sizeof(T) > slab_detail::block_bytes) --n;
    return n;
  }

 public:
  static constexpr std::size_t per_block = fit();
  static_assert(per_block > 0, "too large for a slab");

  constexpr slab() noexcept = default;
  slab(const slab&) = delete;
  slab& operator=(const slab&) = delete;

  T* allocate() noexcept {
    ++live_;
    if (free_ == nil) return carve();
    const std::size_t i = free_ - 1;
    std::uint32_t& link = links(block(i / per_block))[i % per_block];
    free_ = link;
    link = in_use;
    return at(i);
  }

  void release(T* p) noexcept {
    head* b = head_of(p);
    const std::size_t cell = cell_in_block(b, p);
    std::uint32_t& link = links(b)[cell];
    if (link != in_use) fatal("slab: object released twice");
    link = free_;
    free_ = static_cast<std::uint32_t>(b->index * per_block + cell + 1);
    --live_;
  }

  // Objects allocated now; needs the caller's lock.
  std::size_t live() const noexcept { return live_; }

  // Cells ever carved. Acquire: a cell with an index below it is constructed (partner: the release
  // in carve).
  std::size_t size() const noexcept { return size_.load(memory_order_acquire); }

  // i < size(), as this thread has read it.
  T* at(std::size_t i) const noexcept { return cell(block(i / per_block), i % per_block); }

  static std::size_t index_of(const T* p) noexcept {
    head* b = head_of(p);
    return b->index * per_block + cell_in_block(b, p);
  }

  // f(T* first, std::size_t n) for each block, with the cells carved when the walk began.
  template <class F>
  void for_each_block(F&& f) const {
    const std::size_t n = size();
    for (std::size_t i = 0; i < n; i += per_block) f(at(i), n - i < per_block ? n - i : per_block);
  }

  // f(T&) for each cell.
  template <class F>
  void for_each(F&& f) const {
    for_each_block([&](T* first, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) f(first[i]);
    });
  }

 private:
  // A link is the index of the next free cell plus one.
  static constexpr std::uint32_t nil = 0;
  static constexpr std::uint32_t in_use = 0xffffffffU;
  static constexpr std::size_t leaf_size = 512;  // block pointers a leaf: one page
  static constexpr std::size_t top_size = 512;   // 262144 blocks, 16 GiB

  struct leaf {
    atomic<head*> blocks[leaf_size];
  };

  static head* head_of(const T* p) noexcept {
    return reinterpret_cast<head*>(reinterpret_cast<std::uintptr_t>(p) &
                                   ~(slab_detail::block_bytes - 1));
  }
  static T* cell(head* b, std::size_t i) noexcept {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(b) + head_bytes(per_block)) + i;
  }
  static std::size_t cell_in_block(head* b, const T* p) noexcept {
    return static_cast<std::size_t>(p - cell(b, 0));
  }
  static std::uint32_t* links(head* b) noexcept { return reinterpret_cast<std::uint32_t*>(b + 1); }

  // The loads may be relaxed: whoever has an index has it from size() or through the caller's lock,
  // and both order it behind the stores in carve.
  head* block(std::size_t b) const noexcept {
    return top_[b / leaf_size]
        .load(memory_order_relaxed)
        ->blocks[b % leaf_size]
        .load(memory_order_relaxed);
  }

  T* carve() noexcept {
    const std::size_t i = size_.load(memory_order_relaxed);  // we are the only writer
    const std::size_t b = i / per_block;
    if (i % per_block == 0) add_block(b);
    T* p = ::new (static_cast<void*>(cell(block(b), i % per_block))) T();
    links(block(b))[i % per_block] = in_use;
    size_.store(i + 1, memory_order_release);  // partner: the acquire in size()
    return p;
  }

  void add_block(std::size_t b) noexcept {
    if (b >= top_size * leaf_size || (b + 1) * per_block >= in_use - 1)
      fatal("too many runtime objects of one kind");
    atomic<leaf*>& l = top_[b / leaf_size];
    if (b % leaf_size == 0)
      l.store(::new (slab_detail::map_pages(sizeof(leaf))) leaf(), memory_order_relaxed);
    auto* h = static_cast<head*>(slab_detail::map_block());
    h->index = static_cast<std::uint32_t>(b);
    l.load(memory_order_relaxed)->blocks[b % leaf_size].store(h, memory_order_relaxed);
  }

  atomic<std::size_t> size_{0};
  std::uint32_t free_ = nil;
  std::size_t live_ = 0;
  atomic<leaf*> top_[top_size]{};
};

}  // namespace weft::rt
