// SPDX-License-Identifier: Apache-2.0
// What src/base/atomic.h is to the library, for the systematic tests: the same names, and the
// checker decides what happens. An atomic is as large as its value, which is the newest store;
// the older ones, and who may still see them, are the checker's (../../memory.h).
//
// Each operation knows its line in the source, for the printed interleaving.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "systematic/where.h"

namespace systematic {

using order = std::memory_order;
enum class arithmetic : std::uint8_t { exchange, add, sub, bit_and, bit_or, bit_xor };

std::uint64_t atomic_load(const void* at, std::size_t size, order o, where w) noexcept;
void atomic_store(void* at, std::size_t size, std::uint64_t value, order o, where w) noexcept;
std::uint64_t atomic_modify(void* at, std::size_t size, arithmetic how, std::uint64_t value,
                            order o, where w) noexcept;
bool atomic_compare_exchange(void* at, std::size_t size, std::uint64_t& expected,
                             std::uint64_t desired, bool weak, order success, order failure,
                             where w) noexcept;
void atomic_begins(void* at, std::size_t size, std::uint64_t value) noexcept;
void atomic_ends(void* at) noexcept;
void fence(order o, where w) noexcept;
void relax(where w) noexcept;

constexpr order failure_of(order success) noexcept {
  if (success == order::acq_rel) return order::acquire;
  return success == order::release ? order::relaxed : success;
}

template <class T>
class atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;

  constexpr atomic() noexcept : atomic(T()) {}
  constexpr atomic(T v) noexcept : value_(v) {  // NOLINT: implicit as std's
    if (!std::is_constant_evaluated()) atomic_begins(this, sizeof(T), bits(v));
  }
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
  constexpr ~atomic() {
    if (!std::is_constant_evaluated()) atomic_ends(this);
  }

  T load(order o = order::seq_cst, where w = where::current()) const noexcept {
    return value(atomic_load(this, sizeof(T), o, w));
  }
  void store(T v, order o = order::seq_cst, where w = where::current()) noexcept {
    atomic_store(this, sizeof(T), bits(v), o, w);
  }
  T exchange(T v, order o = order::seq_cst, where w = where::current()) noexcept {
    return value(atomic_modify(this, sizeof(T), arithmetic::exchange, bits(v), o, w));
  }
  bool compare_exchange_strong(T& expected, T desired, order success, order failure,
                               where w = where::current()) noexcept {
    return change(expected, desired, false, success, failure, w);
  }
  bool compare_exchange_strong(T& expected, T desired, order o = order::seq_cst,
                               where w = where::current()) noexcept {
    return change(expected, desired, false, o, failure_of(o), w);
  }
  bool compare_exchange_weak(T& expected, T desired, order success, order failure,
                             where w = where::current()) noexcept {
    return change(expected, desired, true, success, failure, w);
  }
  bool compare_exchange_weak(T& expected, T desired, order o = order::seq_cst,
                             where w = where::current()) noexcept {
    return change(expected, desired, true, o, failure_of(o), w);
  }
  T fetch_add(T v, order o = order::seq_cst, where w = where::current()) noexcept {
    return value(atomic_modify(this, sizeof(T), arithmetic::add, bits(v), o, w));
  }
  T fetch_sub(T v, order o = order::seq_cst, where w = where::current()) noexcept {
    return value(atomic_modify(this, sizeof(T), arithmetic::sub, bits(v), o, w));
  }
  T fetch_and(T v, order o = order::seq_cst, where w = where::current()) noexcept {
    return value(atomic_modify(this, sizeof(T), arithmetic::bit_and, bits(v), o, w));
  }
  T fetch_or(T v, order o = order::seq_cst, where w = where::current()) noexcept {
    return value(atomic_modify(this, sizeof(T), arithmetic::bit_or, bits(v), o, w));
  }
  T fetch_xor(T v, order o = order::seq_cst, where w = where::current()) noexcept {
    return value(atomic_modify(this, sizeof(T), arithmetic::bit_xor, bits(v), o, w));
  }
  T operator=(T v) noexcept {
    store(v);
    return v;
  }
  operator T() const noexcept { return load(); }

 private:
  static std::uint64_t bits(T v) noexcept {
    std::uint64_t b = 0;
    std::memcpy(&b, &v, sizeof v);
    return b;
  }
  static T value(std::uint64_t b) noexcept {
    T v;
    std::memcpy(&v, &b, sizeof v);
    return v;
  }
  bool change(T& expected, T desired, bool weak, order success, order failure, where w) noexcept {
    std::uint64_t e = bits(expected);
    const bool done =
        atomic_compare_exchange(this, sizeof(T), e, bits(desired), weak, success, failure, w);
    if (!done) expected = value(e);
    return done;
  }

  T value_;
};

}  // namespace systematic

namespace weft::rt {

using systematic::atomic;

using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

inline void cpu_relax(systematic::where w = systematic::where::current()) noexcept {
  systematic::relax(w);
}
inline void compiler_barrier() noexcept { asm volatile("" ::: "memory"); }
inline void fence(systematic::order o,
                  systematic::where w = systematic::where::current()) noexcept {
  systematic::fence(o, w);
}

}  // namespace weft::rt
