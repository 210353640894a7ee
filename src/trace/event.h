// SPDX-License-Identifier: Apache-2.0
// The schema of a trace: what is recorded, and how it lies in the rings. Everything that writes or
// reads a record goes through this file.
//
// A record is one or more words. The first: stamp << 8 | kind. The second, where a goroutine is
// concerned: goid, the P, why it waits, and the state that it goes to (g_word). So a record can be
// understood without those before it, but for the time, and a ring can be cut anywhere between two.
//
// A state is what the trace says of a goroutine, which is simpler than g_status: `syscall` is
// everything in which it has no right to a P, announced or detached (sched/detach.cc), and
// `running` implies one.
#pragma once

#include <cstdint>

namespace weft::rt {

enum class trace_kind : std::uint8_t {
  none,
  // -- goroutines
  g_switch,  // w1: who leaves, and where to; w2: who runs, from runnable
  g_stop,    // w1; from running
  g_back,    // w1; from syscall, to anything
  g_run,     // w1; from runnable to running; then its name, if it has one (name_words)
  g_ready,   // w1; from waiting to runnable
  g_spawn,   // w1: the new one; w2: its creator
  g_status,  // w1; w2: its M + 1; then its name. Only between sync_begin and sync_end
  // -- processors
  p_start,   // w1: P; w2: M
  p_stop,    // w1: P
  p_taken,   // w1: P; w2: the goroutine that goes on without it, from running to syscall, or 0;
             // w3: its M
  p_status,  // w1: P; w2: its M + 1, 0: idle
  // -- threads
  m_begin,  // w1: m_doing
  m_end,
  // -- what happened
  steal,       // w1: from which P; w2: how many
  hand_off,    // w1: P
  preempt,     // w1: the P whose M was sent a signal
  timers,      // w1: how many have fired
  polled,      // w1: how many goroutines the poller has made ready
  procs,       // w1: how many Ps there are now
  world,       // w1: 1 stopped, 0 started
  run_end,     // the run is over: its goroutines are gone, its Ps nobody's
  lost,        // w1: records that found no room; w2: the stamp before the first of them
  region,      // w1: the goroutine; w2: length of the text; the text
  end_region,  // w1: the goroutine
  log,         // as region
  stack,       // w1: how many addresses; the addresses. Belongs to the record before it
  sync_begin,  // w1: its number. What follows says how everything stands
  sync_end,
  count_,
};

enum class trace_state : std::uint8_t { none, runnable, running, syscall, waiting, dead };
enum class m_doing : std::uint8_t { idle, polling, spinning, waits_for_p };

// goid: 46 bits, P: 10, reason: 5, state: 3.
struct g_word {
  static constexpr std::uint64_t make(std::uint64_t goid, std::uint32_t p, unsigned reason,
                                      trace_state to, bool named = false) noexcept {
    return (goid & ((1ULL << 45) - 1)) | (static_cast<std::uint64_t>(named) << 45) |
           (static_cast<std::uint64_t>(p & 1023) << 46) |
           (static_cast<std::uint64_t>(reason & 31) << 56) | (static_cast<std::uint64_t>(to) << 61);
  }
  std::uint64_t w;
  std::uint64_t goid() const noexcept { return w & ((1ULL << 45) - 1); }
  bool named() const noexcept { return (w >> 45 & 1) != 0; }
  std::uint32_t p() const noexcept { return w >> 46 & 1023; }
  unsigned reason() const noexcept { return w >> 56 & 31; }
  trace_state to() const noexcept { return static_cast<trace_state>(w >> 61); }
};

inline constexpr unsigned name_words = 4;
inline constexpr unsigned max_text = 128;   // of a region or a log entry
inline constexpr unsigned max_frames = 32;  // of a stack

// Words of the record that begins at w, of which at least two can be read.
constexpr unsigned record_words(const std::uint64_t* w) noexcept {
  using enum trace_kind;
  switch (static_cast<trace_kind>(w[0] & 0xff)) {
    case m_end:
    case run_end:
    case sync_end:
      return 1;
    case g_stop:
    case g_back:
    case g_ready:
    case p_stop:
    case m_begin:
    case hand_off:
    case preempt:
    case timers:
    case polled:
    case procs:
    case world:
    case end_region:
    case sync_begin:
      return 2;
    case g_run:
      return g_word{w[1]}.named() ? 2 + name_words : 2;
    case g_switch:
    case g_spawn:
    case p_start:
    case p_status:
    case steal:
    case lost:
      return 3;
    case g_status:
      return g_word{w[1]}.named() ? 3 + name_words : 3;
    case p_taken:
      return 4;
    case region:
    case log:
      return 3 + static_cast<unsigned>((w[2] + 7) / 8);
    case stack:
      return 2 + static_cast<unsigned>(w[1]);
    case none:
    case count_:
      break;
  }
  return 0;
}

}  // namespace weft::rt
