// SPDX-License-Identifier: Apache-2.0
// See heap.h.
#include "timer/heap.h"

#include <cerrno>
#include <sys/mman.h>
#include <utility>

#include "base/fatal.h"

namespace weft::rt {
namespace {
constexpr std::size_t arity = 4;
constexpr std::size_t first_bytes = 4096;
// The root is the last of its line, so that the children of node i, at 4 i + 1, begin one.
constexpr std::size_t unused = arity - 1;
}  // namespace

void timer_heap::grow() noexcept {
  static_assert(sizeof(item) * arity == 64);
  const std::size_t old = items_ == nullptr ? 0 : (capacity_ + unused) * sizeof(item);
  const std::size_t bytes = old == 0 ? first_bytes : 2 * old;
  const int saved = errno;
  void* p = old == 0
                ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                : ::mremap(items_ - unused, old, bytes, MREMAP_MAYMOVE);
  if (p == MAP_FAILED) fatal_errno("out of memory: cannot grow a timer heap", errno);
  errno = saved;
  items_ = static_cast<item*>(p) + unused;
  capacity_ = bytes / sizeof(item) - unused;
}

void timer_heap::up(std::size_t i, item x) noexcept {
  while (i > 0) {
    const std::size_t parent = (i - 1) / arity;
    if (items_[parent].when <= x.when) break;
    set(i, items_[parent]);
    i = parent;
  }
  set(i, x);
}

void timer_heap::down(std::size_t i, item x) noexcept {
  for (;;) {
    const std::size_t first = i * arity + 1;
    if (first >= size_) break;
    const std::size_t end = first + arity < size_ ? first + arity : size_;
    std::size_t least = first;
    for (std::size_t c = first + 1; c < end; ++c) {
      if (items_[c].when < items_[least].when) least = c;
    }
    if (items_[least].when >= x.when) break;
    set(i, items_[least]);
    i = least;
  }
  set(i, x);
}

void timer_heap::push(timer* t) noexcept {
  if (size_ == capacity_) grow();
  ++size_;
  up(size_ - 1, {t->when, reinterpret_cast<std::uintptr_t>(t) | (t->fixed ? 1U : 0U)});
}

void timer_heap::take_out(std::size_t i) noexcept {
  // Nothing is left behind the end that looks as if somebody were still waited for
  // (debug/leaks.cc).
  const item last = std::exchange(items_[--size_], item{});
  if (i == size_) return;
  if (i > 0 && last.when < items_[(i - 1) / arity].when) {
    up(i, last);
  } else {
    down(i, last);
  }
}

void timer_heap::remove(timer* t) noexcept {
  const std::size_t i = t->place - 1;
  t->place = 0;
  take_out(i);
}

timer* timer_heap::pop() noexcept {
  if (size_ == 0) return nullptr;
  const item top = items_[0];
  if (!top.fixed()) top.t()->place = 0;
  take_out(0);
  return top.t();
}

timer* timer_heap::pop_due(std::int64_t now) noexcept {
  return size_ != 0 && items_[0].when <= now ? pop() : nullptr;
}

bool timer_heap::sound() const noexcept {
  for (std::size_t i = 0; i < size_; ++i) {
    if (!items_[i].fixed() && items_[i].t()->place != i + 1) return false;
    if (i > 0 && items_[(i - 1) / arity].when > items_[i].when) return false;
  }
  return true;
}

}  // namespace weft::rt
