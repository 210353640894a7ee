// SPDX-License-Identifier: Apache-2.0
// What goroutines that fail leave for the report: by the time of it their stacks are unwound. Any
// number of them may be on their way to it, of which one will report, and not always the first one
// that threw.
//
// Neither malloc nor a lock: each has a page of its own from the kernel, never given back, because
// the process ends.
#pragma once

#include <new>

#include "base/atomic.h"
#include "core/g.h"
#include "os/memory.h"

namespace weft::rt {

template <class T>
class last_words {
 public:
  // fill(T&) before anybody can see it. Without memory nothing is kept.
  template <class F>
  void keep(const G* g, F fill) noexcept {
    const mapping m = map_memory(sizeof(entry));
    if (!m) return;
    auto* e = ::new (reinterpret_cast<void*>(m.addr)) entry{g, {}, nullptr};
    fill(e->value);
    e->next = head_.load(memory_order_relaxed);
    while (!head_.compare_exchange_weak(e->next, e, memory_order_release)) {  // with of
    }
  }
  // What g has left last, or null.
  const T* of(const G* g) const noexcept {
    for (const entry* e = head_.load(memory_order_acquire); e != nullptr; e = e->next) {
      if (e->g == g) return &e->value;
    }
    return nullptr;
  }

 private:
  struct entry {
    const G* g;
    T value;
    entry* next;
  };
  atomic<entry*> head_{nullptr};
};

}  // namespace weft::rt
