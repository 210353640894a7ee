// SPDX-License-Identifier: Apache-2.0
// What the scheduler tells the trace: one line where something happens. Off, that is a load of a
// flag beside words that the same paths read anyway, and a branch that is not taken; everything
// else is out of line (tracing.cc).
//
// A hook for a goroutine stands where no one else can yet take it over: before the commit that
// publishes it, before it is put into a queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sched/sched.h"

namespace weft::rt {

namespace on {  // the trace is on
void g_switch(M* m, G* g, G* next) noexcept;
void g_leave(M* m, G* g) noexcept;
void g_stop(M* m, G* g, trace_state to) noexcept;
void g_exit(M* m, G* g, G* next) noexcept;
void g_run(M* m, G* g, trace_state from) noexcept;
void g_ready(G* g) noexcept;
void g_spawn(G* g) noexcept;
void p_start(M* m, P* p) noexcept;
void p_stop(M* m, P* p) noexcept;
void p_taken(P* p, M* m) noexcept;
void m_begin(M* m, m_doing what) noexcept;
void m_end(M* m) noexcept;
void event(trace_kind k, std::uint64_t a, std::uint64_t b) noexcept;
void run_end() noexcept;
}  // namespace on

[[gnu::always_inline]] inline bool tracing() noexcept {
  return sched.tracing.load(memory_order_relaxed);
}

// g leaves m, and next runs there at once.
[[gnu::always_inline]] inline void trace_switch(M* m, G* g, G* next) noexcept {
  if (tracing()) [[unlikely]]
    on::g_switch(m, g, next);
}
// g leaves m, for g0. Whether to wait or to run again, its status says.
[[gnu::always_inline]] inline void trace_leave(M* m, G* g) noexcept {
  if (tracing()) [[unlikely]]
    on::g_leave(m, g);
}
[[gnu::always_inline]] inline void trace_stop(M* m, G* g, trace_state to) noexcept {
  if (tracing()) [[unlikely]]
    on::g_stop(m, g, to);
}
[[gnu::always_inline]] inline void trace_exit(M* m, G* g, G* next) noexcept {
  if (tracing()) [[unlikely]]
    on::g_exit(m, g, next);
}
[[gnu::always_inline]] inline void trace_run(M* m, G* g) noexcept {
  if (tracing()) [[unlikely]]
    on::g_run(m, g, trace_state::runnable);
}
// From a system call, or from computing without a P, with one again.
[[gnu::always_inline]] inline void trace_back(M* m, G* g) noexcept {
  if (tracing()) [[unlikely]]
    on::g_run(m, g, trace_state::syscall);
}
[[gnu::always_inline]] inline void trace_ready(G* g) noexcept {
  if (tracing()) [[unlikely]]
    on::g_ready(g);
}
[[gnu::always_inline]] inline void trace_spawn(G* g) noexcept {
  if (tracing()) [[unlikely]]
    on::g_spawn(g);
}
inline void trace_p_start(M* m, P* p) noexcept {
  if (tracing()) [[unlikely]]
    on::p_start(m, p);
}
inline void trace_p_stop(M* m, P* p) noexcept {
  if (tracing()) [[unlikely]]
    on::p_stop(m, p);
}
// By one who takes p from m, while m cannot look.
inline void trace_p_taken(P* p, M* m) noexcept {
  if (tracing()) [[unlikely]]
    on::p_taken(p, m);
}
inline void trace_begin(M* m, m_doing what) noexcept {
  if (tracing()) [[unlikely]]
    on::m_begin(m, what);
}
inline void trace_end(M* m) noexcept {
  if (tracing()) [[unlikely]]
    on::m_end(m);
}
inline void trace_event(trace_kind k, std::uint64_t a = 0, std::uint64_t b = 0) noexcept {
  if (tracing()) [[unlikely]]
    on::event(k, a, b);
}
// The goroutines that are left never run again. Under the scheduler lock, with the world stopped.
inline void trace_run_end() noexcept {
  if (tracing()) [[unlikely]]
    on::run_end();
}

// -- for debug/trace.cc. All of them with the world stopped by the caller.
void start_tracing(std::size_t max_chunks, bool stacks) noexcept;
void stop_tracing() noexcept;
// Records how everything stands; returns the stamp of its beginning.
std::uint64_t sync_trace() noexcept;
// Regions and log entries, from anywhere. False: there is no trace.
bool trace_text(trace_kind k, std::string_view text) noexcept;
// debug/trace.cc: the caller's return addresses; how many. Direct, not by pointer: what is called
// by pointer may switch, as far as tools/check_tls.py can tell.
unsigned trace_walk(std::uint64_t* pcs, unsigned most) noexcept;

}  // namespace weft::rt
