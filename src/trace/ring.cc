// SPDX-License-Identifier: Apache-2.0
// See ring.h. What happens once a chunk, and at the beginning and the end of a trace.
//
// Runs on every stack that records, g0 and signal stacks included: no malloc, memory comes from
// mmap. The lock is a leaf.
#include "trace/ring.h"

#include <new>

#include "os/memory.h"

namespace weft::rt {

constinit trace_rings traces;

namespace {

constexpr std::size_t at_once = 16;

// Under lock.
trace_chunk* take_chunk() noexcept {
  if (traces.free == nullptr) {
    if (traces.chunks + at_once > traces.max_chunks) return nullptr;
    const mapping m = map_memory(at_once * sizeof(trace_chunk));
    if (!m) return nullptr;
    traces.chunks += at_once;
    traces.free_chunks += at_once;
    for (std::size_t i = 0; i < at_once; ++i) {
      auto* c = ::new (reinterpret_cast<void*>(m.addr + i * sizeof(trace_chunk))) trace_chunk;
      c->free_next = traces.free;
      traces.free = c;
    }
  }
  trace_chunk* c = traces.free;
  traces.free = c->free_next;
  --traces.free_chunks;
  c->next.store(nullptr, memory_order_relaxed);
  c->n.store(0, memory_order_relaxed);
  c->from = 0;
  c->first = 0;
  return c;
}

}  // namespace

std::uint64_t* trace_reserve_slow(trace_ring& r, bool locked) noexcept {
  trace_chunk* c = nullptr;
  if (!traces.full.load(memory_order_relaxed)) {
    if (!locked) traces.lock.lock();
    c = take_chunk();
    if (c == nullptr) traces.full.store(true, memory_order_relaxed);
    if (!locked) traces.lock.unlock();
  }
  if (c == nullptr) {
    if (r.lost++ == 0) r.lost_since = r.last;
    traces.gap.store(true, memory_order_relaxed);
    return nullptr;
  }
  if (r.lost != 0) {  // the last of them has had a stamp that nobody has seen
    c->words[0] = r.last << 8 | static_cast<std::uint64_t>(trace_kind::lost);
    c->words[1] = r.lost;
    c->words[2] = r.lost_since;
    c->n.store(3, memory_order_relaxed);
    r.lost = 0;
  }
  c->first = r.last;
  if (r.tail == nullptr) {
    r.head.store(c, memory_order_release);  // with the consumer
  } else {
    r.tail->next.store(c, memory_order_release);  // with the consumer: its count is final
    traces.filled.fetch_add(1, memory_order_relaxed);
  }
  r.tail = c;
  return c->words + c->n.load(memory_order_relaxed);
}

void trace_give_back(trace_chunk* c) noexcept {
  traces.lock.lock();
  c->free_next = traces.free;
  traces.free = c;
  ++traces.free_chunks;
  traces.full.store(false, memory_order_relaxed);
  traces.lock.unlock();
}

void trace_reset(trace_ring& r) noexcept {
  trace_chunk* c = r.head.load(memory_order_relaxed);
  while (c != nullptr) {
    trace_chunk* next = c->next.load(memory_order_relaxed);
    c->free_next = traces.free;
    traces.free = c;
    ++traces.free_chunks;
    c = next;
  }
  r.head.store(nullptr, memory_order_relaxed);
  r.tail = nullptr;
  r.last = 0;
  r.lost = 0;
  r.doing = false;
}

}  // namespace weft::rt
