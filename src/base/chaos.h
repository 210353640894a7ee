// SPDX-License-Identifier: Apache-2.0
// The chaos build (-DWEFT_CHAOS=ON, preset `chaos`): where a race could be, a seed decides what
// happens. In every other build all of this is nothing: no call, no load, no byte of code.
//
//   point("runq.steal")     a window in which another thread may come between: go on, yield, spin,
//                           sleep for some tens of microseconds
//   flip("force.migrate")   a choice that is free: take the rare way?
//   fault("mmap")           a call that may fail: the errno it is to fail with, or 0
//
// The names stand in the tables below, and one that does not is a compile error. Each seed has its
// own mixture: for each name it draws how often something happens there, never or up to one time in
// four, so a thousand seeds are a thousand different machines and not one machine a thousand times.
//
//   WEFT_CHAOS=seed=42                       the seed; 1 without it
//             ,only=runq                     names that begin so, and no others
//             ,faults=mmap:3:ENOMEM+accept:5%  the third mmap fails; one accept in twenty.
//                                            mmap:3- is every one from the third on
//             ,report=PATH                   at exit: a line for each name, how often it was passed
//                                            and how often something happened; appended
//   WEFT_CHAOS=off                           nothing
//
// Bubbles are left out of the choices (sched/bubble.h): there the order is their own seed's.
// Runs on any stack, in signal handlers too; no lock, no allocation, errno is kept.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::rt::chaos {

inline constexpr std::string_view points[] = {
    // Windows.
    "chan.commit", "chan.hand_over", "chan.lock", "dead.counted", "detach.announced",
    "detach.taking", "event.wake", "exit.free", "exit.take_over", "fd.close", "fd.deadline",
    "fd.finish", "fd.publish", "fd.wake", "find.kept", "handoff.look", "handoff.park",
    "idle.gave_up", "idle.note", "idle.second_look", "kept.queued", "kept.woken", "lock.slow",
    "locked.wait", "maker.make", "mutex.locked", "mutex.queue", "mutex.unlock", "note.sleep",
    "note.wake", "park.commit", "park.status", "poll.claimed", "poll.leave", "poll.looked",
    "preempt.attend", "preempt.handler", "preempt.post", "ready.foreign", "ready.found",
    "ready.status", "run.clear", "run.end", "runq.displaced", "runq.grabbed", "runq.next",
    "runq.overflow", "runq.put", "runq.refill", "runq.steal", "runq.take", "select.claim",
    "select.commit", "select.leave", "select.lock", "spawn.publish", "spin.start", "spin.stop",
    "stack.alloc", "stack.free", "start_m.give", "start_m.idle", "stop_m.listed", "stop_m.woken",
    "stw.begin", "stw.rest", "stw.start", "stw.stop_p", "syscall.enter", "syscall.exit",
    "syscall.taking", "thread.made", "timer.arm", "timer.disarm", "timer.due", "timer.fired",
    "wake.claimed", "wake.look",
    // Choices.
    "force.handoff", "force.migrate", "force.preempt", "force.retake", "force.runnext",
    "force.signal", "force.spurious", "force.steal"};
inline constexpr std::string_view faults[] = {
    "accept",         "epoll_create",   "epoll_ctl",    "epoll_wait",      "eventfd",
    "io_uring_enter", "io_uring_setup", "madvise",      "membarrier",      "mmap",
    "mprotect",       "munmap",         "pipe",         "process_madvise", "pthread_create",
    "signal_stack",   "socket",         "timer_create", "mremap"};

inline constexpr std::size_t npoints = sizeof points / sizeof *points;
inline constexpr std::size_t nfaults = sizeof faults / sizeof *faults;

// A name, looked up by the compiler.
template <const std::string_view* Table, std::size_t N>
struct name_in {
  std::size_t index;
  consteval name_in(const char* name) : index(0) {  // NOLINT: implicit by intent
    while (index < N && Table[index] != name) ++index;
    if (index == N) throw "no such name in the tables of base/chaos.h";
  }
};
using point_name = name_in<points, npoints>;
using fault_name = name_in<faults, nfaults>;

#if defined(WEFT_CHAOS)
inline constexpr bool in_build = true;
void pass(std::size_t point) noexcept;
bool choose(std::size_t point) noexcept;
int fail(std::size_t fault) noexcept;

inline void point(point_name n) noexcept { pass(n.index); }
inline bool flip(point_name n) noexcept { return choose(n.index); }
inline int fault(fault_name n) noexcept { return fail(n.index); }

// For tests: another setting from here on, in the form of WEFT_CHAOS. Not beside a run.
void configure(const char* setting) noexcept;
const char* setting() noexcept;
// Tests that are about the order itself: no choices while one of these lives. Windows stay.
class no_force {
 public:
  no_force() noexcept;
  no_force(const no_force&) = delete;
  no_force& operator=(const no_force&) = delete;
  ~no_force();
};
struct counts {
  unsigned long long passed, acted;
};
counts count_of(point_name n) noexcept;
counts count_of_fault(fault_name n) noexcept;
#else
inline constexpr bool in_build = false;
constexpr void point(point_name) noexcept {}
constexpr bool flip(point_name) noexcept { return false; }
constexpr int fault(fault_name) noexcept { return 0; }
#endif

}  // namespace weft::rt::chaos
