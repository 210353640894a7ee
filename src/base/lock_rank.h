// SPDX-License-Identifier: Apache-2.0
// The order in which runtime locks may be taken, declared once: a thread may take a lock only if
// its rank is greater than that of every runtime lock it already holds. Checked in dev builds at
// each lock and unlock (os/mutex.h); free in release.
#pragma once

#include <cstdint>

namespace weft::rt {

enum class lock_rank : std::uint8_t {
  none = 0,
  run,         // one run() at a time; held over start and end of the runtime
  world,       // who may stop the world
  context,     // one node of a tree of contexts; never two at once
  signals,     // who wants which signal; taken when a context is cancelled
  wait_queue,  // a primitive's list of waiters (event, later channels and sync objects)
  timer,       // a P's timers
  waiters,     // a sync object's waiters; taken by timers that fire
  sched,       // global queue, idle lists, P table
  maker,       // requests to the thread-maker
  free_list,   // free goroutines, global
  g_table,     // the table of all goroutines
  stack,       // stack pools and chunks
  bubble,      // the order of a bubble's members
  leaf,        // takes nothing after it
};

}  // namespace weft::rt
