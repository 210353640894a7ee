// SPDX-License-Identifier: Apache-2.0
// The idle word: how many Ps are idle, how many Ms spin (look for work without having any), and
// whether somebody asks for a spinner, packed into one 64-bit atomic. All three are read and
// changed together, so the wake protocol is a protocol over one word.
//
// The protocol (seed 000, 9.3.6; DESIGN 1, 'Wake rule'). The danger: a goroutine is runnable, a P
// is idle, and nobody looks.
//   waker:    enqueue; full barrier; read the word. A spinner: it will find it. No spinner, an idle
//   P: become
//             the one who starts a spinner (claim_spinner). No spinner, no idle P: leave a note
//             (`need`).
//   giver-up: (an M that found nothing) change the word: P to idle, and no longer spinning; full
//   barrier; look at
//             all queues once more. Or, if it was not spinning and a note lies there: take the
//             note, spin, look again.
// Either the waker's read comes after the giver-up's change, and sees an idle P without a spinner;
// or it comes before, and then the enqueue is visible to the giver-up's second look (spinning case)
// or the note is in the word that its change must be built on (the other case; the CAS fails
// otherwise). All changes are seq_cst read-modify-writes on one word; the barrier pairs are written
// out at wake() in sched/sched.h and at the end of find_work(). Weaker fails: with release/acquire
// both sides may read the other's old value (store buffering).
//
// Descriptors extend it. The danger: a goroutine waits for a descriptor, a P is idle, and nobody
// polls. A waiter is to the count of waiters what a goroutine is to a queue:
//   waiter:   raise the count; is the place in the poller taken? read the word. Not taken and an
//   idle P: wake.
//   giver-up: change the word; read the count; take the place in the poller, or find it taken.
//   leaver:   (out of the poller, no P to be had) free the place; read the word. An idle P: go
//   back.
// Either the waiter's read of the word sees the idle P, or the giver-up's read of the count sees
// the waiter. A giver-up that finds the place taken has changed the word before; the one who had it
// either frees it later, and then sees the idle P, or takes a P itself as a spinner, and the last
// spinner that finds work wakes the next. (sched/fd_wait.cc, sched/worker.cc.)
#pragma once

#include <cstdint>

#include "base/atomic.h"

namespace weft::rt {

struct idle_counts {
  std::uint32_t idle_ps = 0;
  std::uint32_t spinning = 0;
  bool need = false;
  friend constexpr bool operator==(const idle_counts&, const idle_counts&) = default;
};

class idle_word {
 public:
  idle_counts load() const noexcept { return unpack(word_.load(memory_order_seq_cst)); }
  idle_counts peek() const noexcept { return unpack(word_.load(memory_order_relaxed)); }

  // The waker's first look: nobody spins, and there is an idle P or no note yet. Without spinners
  // and idle Ps the word is the note alone.
  bool wants_waker() const noexcept {
    const std::uint64_t w = word_.load(memory_order_seq_cst);
    return (w & spinning_bits) == 0 && w != need_bit;
  }

  // A waker with no spinner in sight. start: the caller now counts as one spinner and must find it
  // a P.
  enum class wake_result { nothing, start };
  wake_result claim_spinner() noexcept {
    std::uint64_t w = word_.load(memory_order_seq_cst);
    for (;;) {
      idle_counts c = unpack(w);
      if (c.spinning != 0 || (c.idle_ps == 0 && c.need)) return wake_result::nothing;
      const bool start = c.idle_ps != 0;
      if (start) {
        c.spinning = 1;
      } else {
        c.need = true;
      }
      if (word_.compare_exchange_weak(w, pack(c), memory_order_seq_cst)) {
        return start ? wake_result::start : wake_result::nothing;
      }
    }
  }
  // A claimed spinner for whom no P was left: gives the claim back, leaves the note. Under the
  // scheduler lock, in one piece with the vain look at the idle list: give_up_p runs under it too,
  // so no P can become idle between.
  void unclaim_spinner() noexcept {
    change([](idle_counts& c) {
      --c.spinning;
      c.need = true;
    });
  }
  void stop_spinning() noexcept {
    change([](idle_counts& c) { --c.spinning; });
  }
  // An M that looks for work: at most half of the busy Ps may spin (M7).
  bool try_start_spinning(std::uint32_t procs) noexcept {
    std::uint64_t w = word_.load(memory_order_relaxed);
    for (;;) {
      idle_counts c = unpack(w);
      if (2 * c.spinning >= procs - c.idle_ps) return false;
      ++c.spinning;
      if (word_.compare_exchange_weak(w, pack(c), memory_order_seq_cst)) return true;
    }
  }
  // Gives the P up (it goes onto the idle list under the scheduler lock). False: somebody left a
  // note; the caller keeps its P, counts as spinning now, and must look again.
  bool give_up_p(bool spinning) noexcept {
    std::uint64_t w = word_.load(memory_order_relaxed);
    for (;;) {
      idle_counts c = unpack(w);
      const bool stay = !spinning && c.need;
      if (stay) {
        c.need = false;
        ++c.spinning;
      } else {
        ++c.idle_ps;
        if (spinning) --c.spinning;
      }
      if (word_.compare_exchange_weak(w, pack(c), memory_order_seq_cst)) return !stay;
    }
  }
  // A P leaves the idle list; `spin`: its new owner starts as a spinner that was not counted
  // before.
  void take_p(bool spin) noexcept {
    change([spin](idle_counts& c) {
      --c.idle_ps;
      if (spin) ++c.spinning;
    });
  }
  void put_p() noexcept {
    change([](idle_counts& c) { ++c.idle_ps; });
  }
  void leave_note() noexcept {
    change([](idle_counts& c) { c.need = true; });
  }
  // A run begins. Its predecessor's Ps have left the count, and its note is void; but a claim
  // stays: a waker without a P (sysmon, a plain thread) may stand between claim_spinner and what
  // follows it, and gives the claim back, or a P to it, in this run.
  void forget_note() noexcept {
    change([](idle_counts& c) { c.need = false; });
  }

  static constexpr std::uint64_t spinning_bits = 0xffffffULL << 24, need_bit = 1ULL << 48;
  static constexpr std::uint64_t pack(idle_counts c) noexcept {
    return c.idle_ps | (static_cast<std::uint64_t>(c.spinning) << 24) |
           (static_cast<std::uint64_t>(c.need) << 48);
  }
  static constexpr idle_counts unpack(std::uint64_t w) noexcept {
    return {static_cast<std::uint32_t>(w & 0xffffff),
            static_cast<std::uint32_t>((w >> 24) & 0xffffff), ((w >> 48) & 1) != 0};
  }

 private:
  template <class F>
  void change(F f) noexcept {
    std::uint64_t w = word_.load(memory_order_relaxed);
    for (;;) {
      idle_counts c = unpack(w);
      f(c);
      if (word_.compare_exchange_weak(w, pack(c), memory_order_seq_cst)) return;
    }
  }
  atomic<std::uint64_t> word_{0};
};

}  // namespace weft::rt
