// SPDX-License-Identifier: Apache-2.0
// The states of a goroutine: what each owns, who may leave it, and the legal edges (keeps G1).
//
//   idle       a fresh cell of the slab; owns nothing. Leaves: whoever carved it, to dead.
//   dead       a shell on a free list (or being set up by a spawner, or ending); owns nothing.
//   Leaves:
//              the spawner that took it off the list, to runnable.
//   runnable   in exactly one queue (G3), its registers saved on its stack, or not begun yet and
//              without a stack. Leaves: the M that took it out of the queue, to running.
//   running    its M executes it (G2). Leaves: that M.
//   syscall    its M is inside blocking(); the P may be taken away. Leaves: that M.
//   waiting    on exactly one wait list (G4). Leaves: the one waker that took it off the list, to
//   runnable. copystack  its stack is being folded away or brought back. Leaves: whoever folds.
//   preempted  stopped inside a signal handler, its thread kept for it. Leaves: the preemptor.
//   leaked     waiting, with the mark of the leak finder. Leaves: a waker, or the finder.
//   deadextra  the goroutine of a spare M for foreign threads. Leaves: the thread that borrows the
//   M.
//
// Who writes the word. DESIGN asks for a CAS on each change. Each state says who may leave it, and
// that is always one thread: its M, the M that dequeued it, the waker that took it off its list. So
// a release store is enough, and some nanoseconds cheaper on the hottest paths; dev builds turn
// every change into a checked CAS. Scanners do not disturb it, because of this rule:
// **G6** the scan bit is set only while the world is stopped and the scheduler lock is held (plain
// threads wake goroutines under that lock), and is gone before either ends.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::rt {

enum class g_status : std::uint16_t {
  idle = 0,
  runnable = 1,
  running = 2,
  syscall = 3,
  waiting = 4,
  dead = 6,
  copystack = 8,
  preempted = 9,
  leaked = 10,
  deadextra = 11,
};
inline constexpr std::uint16_t scan_bit = 0x1000;

constexpr bool legal_edge(g_status from, g_status to) noexcept {
  using enum g_status;
  switch (from) {
    case idle:
      return to == dead || to == deadextra;
    case dead:
      return to == runnable || to == deadextra;
    case runnable:
      return to == running || to == dead;  // dead: left behind by a run that is over
    case running:
      return to == runnable || to == waiting || to == syscall || to == dead || to == preempted;
    case syscall:
      return to == running || to == runnable;
    case waiting:
      return to == runnable || to == leaked || to == copystack;
    case copystack:
      return to == waiting;
    case preempted:
      return to == runnable || to == waiting;
    case leaked:
      return to == waiting || to == runnable;
    case deadextra:
      return to == running || to == syscall || to == dead;
  }
  return false;
}

constexpr std::string_view to_string(g_status s) noexcept {
  using enum g_status;
  switch (s) {
    case idle:
      return "idle";
    case runnable:
      return "runnable";
    case running:
      return "running";
    case syscall:
      return "syscall";
    case waiting:
      return "waiting";
    case dead:
      return "dead";
    case copystack:
      return "copystack";
    case preempted:
      return "preempted";
    case leaked:
      return "leaked";
    case deadextra:
      return "deadextra";
  }
  return "???";
}

enum class p_status : std::uint32_t {
  idle = 0,     // on the idle list, no M (P2, P6)
  running = 1,  // owned by an M that points back (P1)
  stopped = 3,  // the world is stopped (P4)
  dead = 4,     // id >= procs after a shrink; drained (P5)
};

// Why a goroutine waits; printed by dumps, Go's words.
enum class wait_reason : std::uint8_t {
  none,
  task_wait,
  scope_wait,
  world,
  internal,
  chan_receive,
  chan_send,
  chan_receive_nil,
  chan_send_nil,
  select,
  select_no_cases,
  select_nil_cases,  // none of them can ever be ready
  sleep,
  sync_mutex_lock,
  sync_rwmutex_rlock,
  sync_rwmutex_lock,
  sync_cond_wait,
  sync_wait_group_wait,
  semacquire,
  io_wait,
  synctest_run,
  synctest_wait,
};

constexpr std::string_view to_string(wait_reason r) noexcept {
  using enum wait_reason;
  switch (r) {
    case none:
      return "";
    case task_wait:
      return "task wait";
    case scope_wait:
      return "scope wait";
    case world:
      return "stopping the world";
    case internal:
      return "semacquire";
    case chan_receive:
      return "chan receive";
    case chan_send:
      return "chan send";
    case chan_receive_nil:
      return "chan receive (nil chan)";
    case chan_send_nil:
      return "chan send (nil chan)";
    case select:
    case select_nil_cases:
      return "select";
    case select_no_cases:
      return "select (no cases)";
    case sleep:
      return "sleep";
    case sync_mutex_lock:
      return "sync.Mutex.Lock";
    case sync_rwmutex_rlock:
      return "sync.RWMutex.RLock";
    case sync_rwmutex_lock:
      return "sync.RWMutex.Lock";
    case sync_cond_wait:
      return "sync.Cond.Wait";
    case sync_wait_group_wait:
      return "sync.WaitGroup.Wait";
    case semacquire:
      return "semacquire";
    case io_wait:
      return "IO wait";
    case synctest_run:
      return "synctest.Run";
    case synctest_wait:
      return "synctest.Wait";
  }
  return "???";
}

}  // namespace weft::rt
