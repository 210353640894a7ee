// SPDX-License-Identifier: Apache-2.0
// Where trace records go: a ring for each M, and one for everybody who has none.
//
// A ring is a list of chunks. Its M appends; the consumer (debug/trace.cc) reads behind it and puts
// chunks that are read back into the pool. No lock between the two: a chunk's count is published
// with release after its words, and `next` after its last count.
//
// Who may append to an M's ring: that M while it has a P, without a lock; without a P only under
// trace.lock. A stopped world and that lock together therefore exclude every writer, and that is
// how a trace begins and ends. Threads that are no M use the common ring, under the lock.
//
// Time. Each stamp is the CPU's counter, but never less than one step after the last stamp of the
// ring, of the goroutine and of the P that the record is about (a hybrid logical clock). So what
// happens to one of them has strictly rising stamps on every machine, whatever its counters do, and
// records of different rings are in order if one caused the other. Rejected: sequence numbers in
// each record (Go), which cost a word each and a sort in every reader.
//
// No room: the pool is bounded, so that a slow disk costs records and not memory. How many is
// recorded when there is room again (`lost`), and the consumer then asks for a new picture of
// everything (sync).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/atomic.h"
#include "os/mutex.h"
#include "trace/event.h"

namespace weft::rt {

struct trace_chunk {
  static constexpr std::uint32_t capacity = 8192 - 4;
  atomic<trace_chunk*> next{nullptr};
  atomic<std::uint32_t> n{0};  // words that are complete
  std::uint32_t from = 0;      // consumer: those before it are of no interest any more
  trace_chunk* free_next = nullptr;
  std::uint64_t first = 0;  // stamp of the first record; 0: none yet
  std::uint64_t words[capacity];
};
static_assert(sizeof(trace_chunk) == 64 * 1024);

struct trace_ring {
  trace_chunk* tail = nullptr;         // where its owner writes
  std::uint64_t last = 0;              // last stamp
  std::uint64_t lost = 0;              // records since there was no room
  std::uint64_t lost_since = 0;        // the stamp before the first of them
  bool doing = false;                  // an m_begin is open
  atomic<trace_chunk*> head{nullptr};  // where the consumer reads; written once by the owner
};

struct trace_rings {
  mutex lock{lock_rank::leaf};
  trace_ring common;  // of threads that are no M; under lock
  // -- set while nobody writes.
  std::uint64_t base = 0;  // the counter when the trace began
  std::uint64_t step = 1;  // counts that are at least a nanosecond
  bool stacks = false;     // wanted: record them
  // -- the pool; under lock.
  trace_chunk* free = nullptr;
  std::size_t chunks = 0, max_chunks = 0, free_chunks = 0;
  atomic<bool> full{false};         // nothing is to be had
  atomic<std::uint64_t> filled{0};  // chunks ever filled: the consumer has work
  atomic<bool> gap{false};          // records were lost since the last sync
};
extern constinit trace_rings traces;

[[gnu::always_inline]] inline std::uint64_t trace_clock() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t t;
  asm volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
#endif
}

// A stamp after `last` and `other`.
[[gnu::always_inline]] inline std::uint64_t trace_stamp(std::uint64_t last,
                                                        std::uint64_t other = 0) noexcept {
  const std::uint64_t floor = (last > other ? last : other) + traces.step;
  const std::uint64_t now = trace_clock() - traces.base;
  return now > floor && static_cast<std::int64_t>(now) > 0 ? now : floor;
}

// Room for n words, or null: the record is lost, and counted. Complete with trace_commit. locked:
// the caller holds traces.lock.
std::uint64_t* trace_reserve_slow(trace_ring& r, bool locked) noexcept;
[[gnu::always_inline]] inline std::uint64_t* trace_reserve(trace_ring& r, unsigned n,
                                                           bool locked) noexcept {
  trace_chunk* c = r.tail;
  if (c == nullptr) [[unlikely]]
    return trace_reserve_slow(r, locked);
  const std::uint32_t at = c->n.load(memory_order_relaxed);
  if (at + n > trace_chunk::capacity) [[unlikely]]
    return trace_reserve_slow(r, locked);
  return c->words + at;
}
[[gnu::always_inline]] inline void trace_commit(trace_ring& r, unsigned n) noexcept {
  trace_chunk* c = r.tail;
  c->n.store(c->n.load(memory_order_relaxed) + n,
             memory_order_release);  // with the consumer's acquire
}

void trace_reset(trace_ring& r) noexcept;       // under lock; drops what is in it
void trace_give_back(trace_chunk* c) noexcept;  // a chunk that has been read; takes the lock

}  // namespace weft::rt
