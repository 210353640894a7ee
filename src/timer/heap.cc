// SPDX-License-Identifier: Apache-2.0
// See heap.h.
#include "timer/heap.h"

#include <cerrno>
#include <sys/mman.h>

#include "base/fatal.h"

namespace weft::rt {
namespace {
constexpr std::size_t arity = 4;
constexpr std::size_t first_bytes = 4096;
}  // namespace

void timer_heap::grow() noexcept {
  const std::size_t old = capacity_ * sizeof(item);
  const std::size_t bytes = old == 0 ? first_bytes : 2 * old;
  const int saved = errno;
  void* p = old == 0
                ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                : ::mremap(items_, old, bytes, MREMAP_MAYMOVE);
  if (p == MAP_FAILED) fatal_errno("out of memory: cannot grow a timer heap", errno);
  errno = saved;
  items_ = static_cast<item*>(p);
  capacity_ = bytes / sizeof(item);
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
  up(size_ - 1, {t->when, t});
}

void timer_heap::remove(timer* t) noexcept {
  const std::size_t i = t->place - 1;
  t->place = 0;
  const item last = items_[--size_];
  if (i == size_) return;
  if (i > 0 && last.when < items_[(i - 1) / arity].when) {
    up(i, last);
  } else {
    down(i, last);
  }
}

timer* timer_heap::pop() noexcept {
  if (size_ == 0) return nullptr;
  timer* t = items_[0].t;
  remove(t);
  return t;
}

timer* timer_heap::pop_due(std::int64_t now) noexcept {
  return size_ != 0 && items_[0].when <= now ? pop() : nullptr;
}

bool timer_heap::sound() const noexcept {
  for (std::size_t i = 0; i < size_; ++i) {
    if (items_[i].t->place != i + 1) return false;
    if (i > 0 && items_[(i - 1) / arity].when > items_[i].when) return false;
  }
  return true;
}

}  // namespace weft::rt
