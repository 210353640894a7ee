// SPDX-License-Identifier: Apache-2.0
// See heap_blocks.h. glibc keeps the size of each block in front of it, so a heap can be walked
// from its first chunk to its last. What is found counts only if all of it fits together; whoever
// asks for a block elsewhere, in another allocator's memory or while somebody stands inside malloc,
// is told that nobody knows.
//   - The main heap is [heap]. Each chunk must have a size that can be, the sizes must lead exactly
//     to the end, and where a chunk is said to be free its size must stand at its end too. The last
//     chunk is the top: some word in the data of a library must point there, and all that is around
//     it must be malloc's record of an arena (malloc_state), with no lock held, with bins that are
//     empty or lead into the heap, and with as many bytes as [heap] has.
//   - Another arena has heaps of 64 MB, aligned to that, each with a head that names the arena and
//     the heap before. The arena's own bytes must be the sum of them all.
// Sizes are changed under the arena's lock only, so nobody was stopped while changing them if it is
// free. A thread of ours may have had it in between: the finder asks again after its look, and
// compares.
//
// Not known: blocks of 16 KB and more. One of those may be the stack of a thread, and nothing but a
// register need point there. So chunks that are mappings of their own are none of our business.
// Nor is a program that is linked statically, where [heap] does not begin with malloc's.
#include "debug/heap_blocks.h"

#include <algorithm>
#include <cstring>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace weft::rt {

#if defined(__GLIBC__) && __SIZEOF_POINTER__ == 8
namespace {

using address = std::uintptr_t;
constexpr address word = sizeof(address);

// malloc_state from 2.27 on, in words: lock and flags, have_fastchunks, ten fast bins, then
constexpr std::size_t top_at = 12, bins_at = 14, bins = 127, next_at = 270, bytes_at = 273,
                      state_words = 275;
constexpr address heap_max = 64 << 20;                 // of an arena that is not the main one
constexpr std::size_t infos[] = {4 * word, 6 * word};  // heap_info up to 2.34, and from then on
constexpr address in_use_before = 1, is_mapping = 2, is_other = 4, flags = 7;
constexpr address chunk_head = 2 * word, least = 4 * word, aligned = 2 * word;
constexpr address largest = 16 * 1024;  // PTHREAD_STACK_MIN

bool layout_is_known() noexcept {
  const char* v = ::gnu_get_libc_version();
  if (v[0] != '2' || v[1] != '.') return false;
  int minor = 0;
  for (v += 2; *v >= '0' && *v <= '9'; ++v) minor = minor * 10 + (*v - '0');
  return minor >= 27 && minor <= 42;
}

class finder {
 public:
  finder(arena& memory, region_reader& reader, const arena_list<region>& regions,
         arena_list<span>& own) noexcept
      : memory_(memory), reader_(reader), regions_(regions), own_(own) {}

  void find(heap_block* first, heap_block* last) noexcept {
    const span main = main_heap();
    while (first != last) {
      const address base = first->at & ~(heap_max - 1);
      const bool in_main = first->at >= main.lo && first->at < main.hi;
      const address end = in_main ? main.hi : base + heap_max;
      heap_block* next = std::find_if(first, last, [end](heap_block& b) { return b.at >= end; });
      // One that the main heap begins with lies behind the others.
      if (!in_main && main.lo >= base && main.lo < end)
        next = std::find_if(first, next, [&](heap_block& b) { return b.at >= main.lo; });
      const bool known =
          in_main ? find_in_main(main, first, next) : find_in_other(base, first, next);
      if (known) {
        note_neighbours(first, next);
        free_.for_each([this](const span& s) { own_.push(memory_, s); });
      } else {
        for (heap_block* b = first; b != next; ++b) b->lo = b->hi = 0;
      }
      first = next;
    }
  }

 private:
  // -- reading, a piece at a time
  bool read(address at, address& to) noexcept {
    if (at < window_.lo || at + word > window_.hi) {
      constexpr std::size_t bytes = 32 * 1024;
      std::size_t got = 0;
      if (at % word != 0) return false;
      words_ = reader_.peek(at, bytes, &got);
      window_ = {at, at + got};
      if (got < word) return false;
    }
    to = words_[(at - window_.lo) / word];
    return true;
  }
  bool holds(address at, address value) noexcept {
    address v = 0;
    return read(at, v) && v == value;
  }

  bool is_writable(address at) const noexcept {
    bool found = false;
    regions_.for_each(
        [&](const region& r) { found = found || (r.sparse && r.lo <= at && at < r.hi); });
    return found;
  }

  // All of [heap], which may lie there in pieces; nothing if something lies in between.
  span main_heap() const noexcept {
    span s{0, 0};
    bool whole = true;
    regions_.for_each([&](const region& r) {
      if (r.what != region::kind::heap) return;
      whole = whole && (s.hi == 0 || s.hi == r.lo);
      s = {s.hi == 0 ? r.lo : s.lo, r.hi};
    });
    return whole ? s : span{0, 0};
  }

  // -- walking
  // From the first chunk to `end`, which must be met. `top`: the last one, which nobody has yet; 0:
  // the heap is full, and closed by a mark.
  bool walk(address at, address end, bool main, heap_block* b, heap_block* last,
            address& top) noexcept {
    address size_before = 0;
    bool free_before = false;
    free_ = {};
    for (bool first = true;; first = false) {
      address size = 0, before = 0;
      if (!read(at, before) || !read(at + word, size)) return false;
      const bool is_free = (size & in_use_before) == 0;  // the one before
      if (is_free && (first || free_before || before != size_before)) return false;
      if (is_free) note_free(at - size_before, at);
      // What a block may use ends behind the first word of the next chunk.
      for (const address lo = at - size_before + chunk_head; b != last && b->at < at + word; ++b) {
        if (!first && !is_free && size_before <= largest && b->at >= lo)
          *b = {b->at, lo, at + word, at};
      }
      const address kind = size & flags, left = end - at;
      size &= ~flags;
      const bool closes = !main && (kind & in_use_before) != 0;
      if (closes && size == 0 && left == chunk_head) {
        top = 0;
        return true;
      }
      const bool mark = !main && size == chunk_head && left == 2 * chunk_head;
      if ((kind & is_mapping) != 0 || (main && (kind & is_other) != 0)) return false;
      if (!mark && (size < least || size % aligned != 0 || size > left)) return false;
      if (size == left) {
        top = at;
        note_free(at, end);
        return !is_free;
      }
      free_before = is_free;
      size_before = size;
      at += size;
    }
  }

  // Old pointers lie about in what is free. Small ones would cost more than they bring.
  void note_free(address chunk, address end) noexcept {
    if (end - chunk >= 512) free_.push(memory_, {chunk + chunk_head, end});
  }

  // -- the record of an arena
  struct state {
    address at;
    address words[state_words];
    address top() const noexcept { return words[top_at]; }
    bool is_locked() const noexcept { return static_cast<std::uint32_t>(words[0]) != 0; }
  };

  bool load_state(address at, state& s) noexcept {
    s.at = at;
    for (std::size_t i = 0; i < state_words; ++i) {
      if (!read(at + i * word, s.words[i])) return false;
    }
    // An empty bin leads to itself as if it were a chunk; else both ways into a heap.
    for (std::size_t i = 0; i < bins; ++i) {
      const address self = at + (bins_at + 2 * i) * word - chunk_head;
      const address next = s.words[bins_at + 2 * i], before = s.words[bins_at + 2 * i + 1];
      if ((next == self) != (before == self)) return false;
      if (next != self && (next % aligned != 0 || before % aligned != 0)) return false;
    }
    return s.words[next_at] != 0 && s.words[bytes_at] <= s.words[bytes_at + 1];
  }

  bool keep(const state& s) noexcept {
    return own_.push(memory_, {s.at, s.at + state_words * word}) != nullptr;
  }

  bool find_in_main(span heap, heap_block* first, heap_block* last) noexcept {
    address top = 0;
    state s;
    return walk(heap.lo, heap.hi, true, first, last, top) && main_state(heap, top, s) && keep(s);
  }

  // With the lock free, so that nobody was stopped in the middle.

  bool main_state(span heap, address top, state& s) noexcept {
    bool found = false;
    regions_.for_each([&](const region& r) {
      if (r.what != region::kind::data || found) return;
      address w = 0;
      for (address at = r.lo; at < r.hi && !found && read(at, w); at += word) {
        if (w != top || at < r.lo + top_at * word) continue;
        found = load_state(at - top_at * word, s) && s.words[bytes_at] == heap.hi - heap.lo &&
                !s.is_locked();
      }
    });
    return found;
  }

  struct heap_head {
    address arena, before, bytes;
  };
  bool load_head(address at, heap_head& h) noexcept {
    constexpr address page = 4096;
    return is_writable(at) && read(at, h.arena) && read(at + word, h.before) &&
           read(at + 2 * word, h.bytes) && h.bytes >= page && h.bytes <= heap_max &&
           h.bytes % page == 0;
  }

  bool find_in_other(address base, heap_block* first, heap_block* last) noexcept {
    heap_head h;
    state s;
    if (!is_writable(first->at) || !load_head(base, h)) return false;
    const address home = h.arena & ~(heap_max - 1), info = h.arena - home;
    if (std::find(std::begin(infos), std::end(infos), info) == std::end(infos)) return false;
    if (!is_writable(h.arena) || !load_state(h.arena, s) || s.is_locked()) return false;
    const address newest = s.top() & ~(heap_max - 1);
    address bytes = 0;
    bool is_one = false;
    for (address at = newest;;) {
      heap_head one;
      if (!load_head(at, one) || one.arena != h.arena) return false;
      bytes += one.bytes;
      is_one = is_one || at == base;
      if (bytes > s.words[bytes_at]) return false;
      if (one.before == 0) {
        if (at != home) return false;
        break;
      }
      at = one.before;
      if (at % heap_max != 0) return false;
    }
    if (!is_one || bytes != s.words[bytes_at]) return false;
    address begin = base == home ? h.arena + state_words * word : base + info;
    begin = (begin + aligned - 1) & ~(aligned - 1);
    address top = 0;
    window_ = {0, 0};
    if (!walk(begin, base + h.bytes, false, first, last, top)) return false;
    return top == (base == newest ? s.top() : 0) && keep(s);
  }

  // Behind a block may lie a free chunk, which is in a list of malloc's: those beside it there
  // point to where it begins, and that is the last word of the block.
  void note_neighbours(heap_block* first, heap_block* last) noexcept {
    for (heap_block* b = first; b != last; ++b) {
      if (b->lo == 0 || (b != first && b->lo == b[-1].lo)) continue;
      const address chunk = b->next;
      address size = 0, after = 0;
      if (!read(chunk + word, size)) continue;
      size &= ~flags;
      if (!read(chunk + size + word, after) || (after & in_use_before) != 0)
        continue;  // or the top
      note_link(chunk, 2, 3);
      note_link(chunk, 3, 2);
      if (size < 1024) continue;
      note_link(chunk, 4, 5);  // of large ones the list by size
      note_link(chunk, 5, 4);
    }
  }
  void note_link(address chunk, address there, address back) noexcept {
    address other = 0;
    if (!read(chunk + there * word, other) || other % aligned != 0) return;
    const address at = other + back * word;
    if (holds(at, chunk)) own_.push(memory_, {at, at + word});
  }

  arena& memory_;
  region_reader& reader_;
  const arena_list<region>& regions_;
  arena_list<span>& own_;
  arena_list<span> free_;
  span window_{0, 0};
  const address* words_ = nullptr;
};

}  // namespace

void find_blocks(arena& memory, region_reader& reader, const arena_list<region>& regions,
                 heap_block* blocks, std::size_t n, arena_list<span>& own) noexcept {
  if (n == 0 || !layout_is_known()) return;
  finder(memory, reader, regions, own).find(blocks, blocks + n);
}

#else

void find_blocks(arena&, region_reader&, const arena_list<region>&, heap_block*, std::size_t,
                 arena_list<span>&) noexcept {}

#endif

}  // namespace weft::rt
