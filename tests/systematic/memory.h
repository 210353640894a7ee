// SPDX-License-Identifier: Apache-2.0
// The memory model: which stores a load may see, and what it learns by seeing one.
//
// Each location has its stores in modification order. A thread has a view: for each location the
// oldest store that it may still see (coherence), and for each thread how much of it has happened
// before (a vector clock). A store carries the view that it releases; an acquire load joins the
// view of the store it sees.
//
//   load      sees any store from its view on; relaxed: what it would have acquired is kept for the
//             next acquire fence
//   store     the newest; release: carries the thread's view, else that of its last release fence
//   rmw       sees the newest store and is the next one; carries that one's view on (C++20's
//             release sequence: read-modify-writes only)
//   failed    compare_exchange is a load: it may see an old store, if that differs from what it
//             expects
//   seq_cst   there is one more view, S: the newest store of each location that a seq_cst access
//             has written or seen, or that a seq_cst fence's thread knew of. A seq_cst load sees
//             nothing older than S has; a seq_cst fence joins S and its thread's view, both ways
//             (coherence only: a fence alone hands no plain data over).
//
// What is allowed here C++20 allows too. What C++20 allows and this does not show:
//   - load buffering (a load that sees a store which comes later): no out-of-thin-air
//     reasoning, and no processor that we run on does it where there is a dependency;
//   - a modification order against the order of execution (2+2W with relaxed stores);
//   - a seq_cst order against happens-before, which mixed accesses may have on Power;
//   - an old store seen more than options::stale times in a row: stores become visible in time.
// litmus_test.cc has the exact sets.
//
// Here are no threads and no choices: the engine asks how many stores may be seen and says which.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "systematic/checker.h"

namespace systematic {

inline constexpr int max_locations = 160;
using order = std::memory_order;

constexpr bool acquires(order o) noexcept {
  return o == order::acquire || o == order::consume || o == order::acq_rel || o == order::seq_cst;
}
constexpr bool releases(order o) noexcept {
  return o == order::release || o == order::acq_rel || o == order::seq_cst;
}

struct clock_vector {
  std::array<std::uint32_t, max_threads> at{};
  void join(const clock_vector& o) noexcept;
};

// Which stores are too old to be seen: the place in modification order of the oldest that may be.
struct coherence {
  std::array<std::uint16_t, max_locations> at{};
  int used = 0;  // locations from here on are 0
  void join(const coherence& o) noexcept;
  void raise(int location, std::uint16_t to) noexcept;
  std::uint16_t of(int location) const noexcept { return at[static_cast<unsigned>(location)]; }
};

struct view {
  coherence seen;
  clock_vector happened;
  void join(const view& o) noexcept {
    seen.join(o.seen);
    happened.join(o.happened);
  }
};

struct thread_memory {
  view now;
  view at_acquire_fence;  // what relaxed loads have seen
  view released;          // at the last release fence
  // Finite visibility: how often in a row an old store of a location was seen.
  std::array<std::uint8_t, max_locations> stale{};
  // A spin-wait: which values were seen where since the last relax, and in the round before.
  std::vector<std::pair<int, std::uint64_t>> looked_at, before;
};

struct store_record {
  std::uint64_t value = 0;
  view carries;
  int by = -1;  // -1: before the threads began
};

struct location {
  void* at = nullptr;
  std::size_t size = 0;
  std::vector<store_record> stores;
  bool alive = true;
  // Its construction, a plain write, and everybody's last access, for its destruction.
  int made_by = -1;
  std::uint32_t made_at = 0;
  std::array<std::uint32_t, max_threads> used_at{};
};

class memory {
 public:
  void reset() noexcept;
  // What the threads did before is known to all: setup, or an earlier threads().
  void begin_threads(int n) noexcept;

  int find(const void* at, std::size_t size) noexcept;  // makes it if it is new
  int known(const void* at) const noexcept;             // or -1
  location& operator[](int l) noexcept { return places_[static_cast<unsigned>(l)]; }
  thread_memory& thread(int t) noexcept { return threads_[static_cast<unsigned>(t)]; }

  // The places in modification order that t may see now: first .. newest.
  int oldest_visible(int t, int l, order o, int stale_limit) const noexcept;
  int newest(int l) const noexcept;
  std::uint64_t load(int t, int l, int which, order o) noexcept;
  void store(int t, int l, std::uint64_t value, order o) noexcept;
  // Sees the newest, stores `value` behind it.
  void modify(int t, int l, std::uint64_t value, order o) noexcept;
  void fence(int t, order o) noexcept;
  // There is something else to see, or this round has seen something else than the one before.
  bool can_relax(int t) const noexcept;
  void relax(int t) noexcept;  // and it is seen from now on
  void construct(int t, int l, std::uint64_t value) noexcept;
  // Null, or what is wrong with it.
  const char* access(int t, int l) noexcept;
  const char* destroy(int t, int l) noexcept;
  void tick(int t) noexcept { ++now(t).happened.at[static_cast<unsigned>(t)]; }

 private:
  view& now(int t) noexcept { return thread(t).now; }
  void see(int t, int l, int which, order o) noexcept;
  void looked(int t, int l, std::uint64_t value) noexcept;
  std::uint64_t newest_value(int l) const noexcept;
  void write(int t, int l, std::uint64_t value, order o, const view* onwards) noexcept;

  std::vector<location> places_;
  std::size_t used_ = 0;
  std::unordered_map<const void*, int> index_;
  std::array<thread_memory, max_threads> threads_;
  coherence s_;  // S
};

extern memory the_memory;

}  // namespace systematic
